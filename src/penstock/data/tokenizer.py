"""From text to tokens.

Documents are told apart by where they start, not by a special token, so that bytes need no token
beside themselves. What a tokenizer file puts around a text (a token that begins it, say) is kept.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.data._digest import digest, unreadable
from penstock.errors import RunError, ShapeError
from penstock.files.regular import read_regular

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

Tokens = NDArray[np.integer[Any]]
"""Tokens in a row, in whatever they are stored in."""
Marks = NDArray[np.bool_]
"""Which of some tokens count in the loss."""
CharacterRanges = Sequence[tuple[int, int]]
"""CharacterRanges of characters."""


class MarkedTokens(NamedTuple):
    """The tokens of a text of which a part counts."""

    tokens: Tokens
    counted: Marks


class Tokenizer(Protocol):
    """Makes tokens, 0 to below `vocabulary`, from text."""

    @property
    def name(self) -> str: ...

    @property
    def vocabulary(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """Changes whenever some text may become other tokens."""
        ...

    def encode(self, text: str) -> Tokens: ...

    def encode_all(self, texts: Sequence[str]) -> list[Tokens]:
        """The same for each of several texts, as fast as the machine can."""
        ...

    def encode_marked(self, texts: Sequence[tuple[str, CharacterRanges]]) -> list[MarkedTokens]:
        """The same, with the tokens of some characters of each text marked."""
        ...

    def encode_rendered(self, texts: Sequence[tuple[str, CharacterRanges]]) -> list[MarkedTokens]:
        """The same for texts that have their special tokens in them: none is added."""
        ...


class Bytes:
    """A token is a byte of the text's UTF-8 form: 0 to 255."""

    name = "byte"
    vocabulary = 256
    fingerprint = digest("byte")

    def encode(self, text: str) -> Tokens:
        """The bytes of a text.

        >>> Bytes().encode("a\\u00e9").tolist()
        [97, 195, 169]
        """
        return np.frombuffer(text.encode(), dtype=np.uint8)

    def encode_all(self, texts: Sequence[str]) -> list[Tokens]:
        return [self.encode(text) for text in texts]

    def encode_marked(self, texts: Sequence[tuple[str, CharacterRanges]]) -> list[MarkedTokens]:
        return [self._marked(text, ranges) for text, ranges in texts]

    encode_rendered = encode_marked

    def _marked(self, text: str, ranges: CharacterRanges) -> MarkedTokens:
        tokens = self.encode(text)
        counted = np.zeros(len(tokens), dtype=np.bool_)
        for start, stop in ranges:
            first = len(text[:start].encode())
            counted[first : first + len(text[start:stop].encode())] = True
        return MarkedTokens(tokens, counted)


class HuggingFace:
    """The tokenizer that a `tokenizer.json` describes, with what it puts around every text.

    Files may carry the truncation and padding of one use; both are switched off, since a document
    is kept whole and nothing is padded.
    """

    def __init__(self, path: Path, end_token: str) -> None:
        content = _content(path)
        self.name = str(path)
        self._library = _parsed(path, content)
        self._library.no_truncation()
        self._library.no_padding()
        ids = self._library.get_vocab(with_added_tokens=True)
        self.vocabulary = max(ids.values(), default=-1) + 1
        self._end = _end(path, ids, end_token)
        self.fingerprint = digest("hugging face", content, end_token)

    def encode(self, text: str) -> Tokens:
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[Tokens]:
        found = self._encoded(texts, add_special_tokens=True)
        # An empty text stays empty and is left out, instead of two special tokens without content.
        whole = [one.ids + self._end if text else [] for text, one in zip(texts, found)]
        return [np.array(ids, dtype=np.uint32) for ids in whole]

    def encode_marked(self, texts: Sequence[tuple[str, CharacterRanges]]) -> list[MarkedTokens]:
        found = self._encoded([text for text, _ in texts], add_special_tokens=True)
        return [
            _marked(one, *text, self._end if text[0] else []) for one, text in zip(found, texts)
        ]

    def encode_rendered(self, texts: Sequence[tuple[str, CharacterRanges]]) -> list[MarkedTokens]:
        found = self._encoded([text for text, _ in texts], add_special_tokens=False)
        return [_marked(one, *text, []) for one, text in zip(found, texts)]

    def _encoded(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[Any]:
        try:
            return list(
                self._library.encode_batch(list(texts), add_special_tokens=add_special_tokens)
            )
        except BaseException as error:
            _pass_on(error)
            raise ShapeError(
                f"{self.name!r} cannot tokenise a text: {str(error)[:200]}",
                hint="give the tokenizer an unknown token (unk_token of its model), or one that "
                "falls back to bytes",
            ) from None


def _marked(encoding: Any, text: str, ranges: CharacterRanges, end: list[int]) -> MarkedTokens:
    """Tokens with those marked that hold a character of the ranges, and all between two of them.

    What is put behind the text counts with its last character: a model has to learn where to stop.
    """
    if not text:
        return MarkedTokens(np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.bool_))
    tokens = np.array(encoding.ids + end, dtype=np.uint32)
    counted = np.zeros(len(tokens), dtype=np.bool_)
    offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    begins, ends = offsets[:, 0], offsets[:, 1]
    for start, stop in ranges:
        inside = np.flatnonzero((ends > start) & (begins < stop) & (ends > begins))
        if len(inside):
            last = len(tokens) if stop == len(text) else int(inside[-1]) + 1
            counted[int(inside[0]) : last] = True
    return MarkedTokens(tokens, counted)


def tokenizer(name: str, end_token: str = "") -> Tokenizer:
    """The tokenizer of that name: `byte`, or a path."""
    if name != "byte":
        path = Path(name).expanduser()
        return HuggingFace(path / "tokenizer.json" if os.path.isdir(path) else path, end_token)
    if end_token:
        raise ShapeError(
            f"data.end_token is {end_token!r}, but the byte tokenizer has no special tokens",
            hint="leave data.end_token out, or name a tokenizer.json in data.tokenizer",
        )
    return Bytes()


def _content(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        refusal = unreadable(path, error)
        refusal.hint = "data.tokenizer is 'byte' or the path of a tokenizer.json"
        raise refusal from None


def _parsed(path: Path, content: bytes) -> "Library":
    try:
        from tokenizers import Tokenizer as Library
    except ImportError:
        raise RunError(
            f"reading {str(path)!r} needs the package tokenizers, which is not installed",
            hint="pip install 'penstock[hf]'",
        ) from None
    try:
        json.loads(content)
        return Library.from_buffer(content)
    except BaseException as error:
        _pass_on(error)
        raise ShapeError(
            f"{str(path)!r} is not a tokenizer: {str(error)[:200]}",
            hint="give the tokenizer.json that belongs to the model",
        ) from None


def _pass_on(error: BaseException) -> None:
    """The library raises plain exceptions, and what its Rust code panics with is not even one."""
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | MemoryError):
        raise error


def _end(path: Path, ids: dict[str, int], end_token: str) -> list[int]:
    if not end_token:
        return []
    if end_token not in ids:
        raise ShapeError(
            f"data.end_token is {end_token!r}, which {str(path)!r} does not have",
            hint="special tokens are listed under added_tokens in that file",
        )
    return [ids[end_token]]
