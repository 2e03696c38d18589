"""Documents become sequences: nothing lost but the counted tail, nothing twice, nothing mixed."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import corpus_of, lengths, numbered, usual
from penstock.data.batch import IGNORE
from penstock.data.order import shuffle
from penstock.data.packing import PackedRow, pack_documents, row

pytestmark = pytest.mark.torch


def table_rows(documents: list[list[int]], order: list[int], length: int) -> list[PackedRow]:
    corpus = corpus_of(documents)
    packed = pack_documents(corpus, np.array(order), length)
    return [row(corpus, packed, sequence) for sequence in range(packed.count)]


def test_the_picture_of_the_docstring() -> None:
    letters = [[97] * 7, [98] * 3, [99] * 8, [100] * 3]
    first, second = table_rows(letters, [0, 1, 2, 3], 8)
    assert bytes(first.tokens.tolist()) == b"aaaaaaab"
    assert bytes(second.tokens.tolist()) == b"bbcccccc"
    assert (first.documents, second.documents) == ((0, 7), (0, 2))


def test_a_label_is_the_next_token_of_the_same_document() -> None:
    first, second = table_rows([[1, 2, 3], [4, 5], [6], [7, 8]], [0, 1, 2, 3], 4)
    assert first.labels.tolist() == [2, 3, IGNORE, 5]  # 4 goes on in the next sequence
    assert second.labels.tolist() == [IGNORE, IGNORE, 8, IGNORE]
    assert second.documents == (0, 1, 2)


def test_a_document_that_fills_sequences_exactly_ends_without_a_label() -> None:
    rows = table_rows([list(range(8)), [9, 9, 9, 9]], [0, 1], 4)
    assert [one.labels.tolist() for one in rows] == [
        [1, 2, 3, 4],
        [5, 6, 7, IGNORE],
        [9, 9, 9, IGNORE],
    ]
    assert [one.documents for one in rows] == [(0,), (0,), (0,)]


@usual
@given(lengths=lengths, length=st.integers(1, 10), data=st.data())
def test_every_token_is_there_once_in_order_up_to_the_dropped_tail(
    lengths: list[int], length: int, data: st.DataObject
) -> None:
    documents = [document for document in numbered(lengths) if document]
    order = data.draw(st.permutations(range(len(documents))))
    rows = table_rows(documents, order, length)
    stream = [token for number in order for token in documents[number]]
    assert [token for one in rows for token in one.tokens.tolist()] == stream[
        : len(stream) // length * length
    ]


@usual
@given(lengths=lengths, length=st.integers(1, 10))
def test_boundaries_and_labels_agree_with_the_documents(lengths: list[int], length: int) -> None:
    documents = [document for document in numbered(lengths) if document]
    following = {a: b for document in documents for a, b in pairwise(document)}
    for tokens, labels, starts in table_rows(documents, list(range(len(documents))), length):
        assert labels.tolist() == [following.get(token, IGNORE) for token in tokens.tolist()]
        fresh = [at for at, token in enumerate(tokens.tolist()) if token % 1000 == 0 or at == 0]
        assert list(starts) == fresh


@usual
@given(count=st.integers(0, 50), seed=st.integers(0, 2**70), epoch=st.integers(0, 5))
def test_a_shuffle_is_an_order_of_all_numbers_and_always_the_same(
    count: int, seed: int, epoch: int
) -> None:
    order = shuffle(count, seed, epoch).tolist()
    assert sorted(order) == list(range(count))
    assert order == shuffle(count, seed, epoch).tolist()


def test_a_shuffle_never_changes_from_one_release_to_the_next() -> None:
    assert shuffle(10, 1, 0).tolist() == [9, 2, 4, 7, 5, 0, 8, 6, 3, 1]
    assert shuffle(10, 1, 1).tolist() != shuffle(10, 1, 0).tolist()
