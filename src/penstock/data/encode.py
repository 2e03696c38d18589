"""Documents of several kinds, tokenised together: plain text, marked text, ready tokens."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from penstock.data.sources import SourceDocument, SourceText, SourceTokens
from penstock.data.tokenizer import Marks, Tokenizer, Tokens
from penstock.errors import ShapeError

BATCH = 1 << 20
"""Bytes of text from which documents are tokenised, together."""


class EncodedDocument(NamedTuple):
    """The tokens of a document."""

    tokens: Tokens
    counted: Marks | None
    """Those that count in the loss; None where all do."""


def encode_documents(
    tokenizer: Tokenizer, documents: Sequence[SourceDocument], place: Callable[[int], str]
) -> list[EncodedDocument]:
    """The tokens of each document, in their order; `place` says where the one of a number is."""
    _refuse_foreign(tokenizer, documents, place)
    found: dict[int, EncodedDocument] = {}
    for kind, encode in _WAYS.items():
        mine = [at for at, document in enumerate(documents) if _kind(document) == kind]
        if mine:
            found.update(zip(mine, encode(tokenizer, [documents[at] for at in mine])))
    return [found[at] for at in range(len(documents))]


def _kind(document: SourceDocument) -> str:
    if isinstance(document, SourceTokens):
        return "tokens"
    if document.rendered:
        return "rendered"
    return "plain" if document.counted is None else "marked"


def _plain(tokenizer: Tokenizer, documents: Sequence[SourceDocument]) -> list[EncodedDocument]:
    texts = [document.text for document in documents if isinstance(document, SourceText)]
    return [EncodedDocument(tokens, None) for tokens in tokenizer.encode_all(texts)]


def _marked(tokenizer: Tokenizer, documents: Sequence[SourceDocument]) -> list[EncodedDocument]:
    return [EncodedDocument(*one) for one in tokenizer.encode_marked(_ranges(documents))]


def _rendered(tokenizer: Tokenizer, documents: Sequence[SourceDocument]) -> list[EncodedDocument]:
    return [EncodedDocument(*one) for one in tokenizer.encode_rendered(_ranges(documents))]


def _ranges(
    documents: Sequence[SourceDocument],
) -> list[tuple[str, tuple[tuple[int, int], ...]]]:
    return [(one.text, one.counted or ()) for one in documents if isinstance(one, SourceText)]


def _ready(tokenizer: Tokenizer, documents: Sequence[SourceDocument]) -> list[EncodedDocument]:
    ready = [document for document in documents if isinstance(document, SourceTokens)]
    return [EncodedDocument(document.tokens, document.counted) for document in ready]


def _refuse_foreign(
    tokenizer: Tokenizer, documents: Sequence[SourceDocument], place: Callable[[int], str]
) -> None:
    """Ready tokens must be the tokenizer's: as other numbers they could not be kept."""
    for number, document in enumerate(documents):
        if isinstance(document, SourceTokens):
            highest = int(np.max(document.tokens, initial=0))
            if highest >= tokenizer.vocabulary:
                raise ShapeError(
                    f"{place(number)} has token {highest:,}, but the tokenizer "
                    f"{tokenizer.name!r} has {tokenizer.vocabulary:,}",
                    hint="name the tokenizer that has made the tokens in data.tokenizer",
                )


_WAYS: dict[str, Callable[[Tokenizer, Sequence[SourceDocument]], list[EncodedDocument]]] = {
    "plain": _plain,
    "marked": _marked,
    "rendered": _rendered,
    "tokens": _ready,
}


def document_batches(documents: Iterator[SourceDocument]) -> Iterator[list[SourceDocument]]:
    """Documents in lists that are worth the tokenizer's threads."""
    batch: list[SourceDocument] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += document.size
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
