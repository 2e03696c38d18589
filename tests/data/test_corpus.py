"""Documents over several arrays, and tokens that the model does not have."""

import numpy as np
import pytest

from data.corpora import array_of
from penstock.data import corpus as corpus_module
from penstock.data.corpus import Array, corpus
from penstock.errors import ShapeError

FIRST = array_of([[1, 2, 3], [], [4]], "'a.npy'")
SECOND = array_of([[5], [6, 7, 99, 8]], "'b.npy'")


def test_documents_are_counted_over_all_arrays_without_the_empty_ones() -> None:
    found = corpus([FIRST, SECOND], 100)
    assert found.lengths.tolist() == [3, 1, 1, 4]
    texts = [found.tokens(at, 0, int(size)).tolist() for at, size in enumerate(found.lengths)]
    assert texts == [[1, 2, 3], [4], [5], [6, 7, 99, 8]]
    assert found.tokens(3, 1, 3).tolist() == [7, 99]


def test_what_is_read_is_a_copy() -> None:
    found = corpus([FIRST], 100)
    found.tokens(0, 0, 3)[:] = 0
    assert found.tokens(0, 0, 3).tolist() == [1, 2, 3]


def test_a_token_outside_the_vocabulary_is_named_when_it_is_read() -> None:
    found = corpus([FIRST, SECOND], 50)
    assert found.tokens(3, 0, 2).tolist() == [6, 7]
    with pytest.raises(ShapeError) as refusal:
        found.tokens(3, 1, 4)
    assert refusal.value.message == (
        "document 1 of 'b.npy' has token 99 at offset 2, but the model's vocabulary is 50"
    )


@pytest.mark.parametrize("token", [50, -1])
def test_the_last_token_of_the_vocabulary_is_inside_and_its_neighbours_are_not(token: int) -> None:
    assert corpus([array_of([[0, 49]])], 50).tokens(0, 0, 2).tolist() == [0, 49]
    with pytest.raises(ShapeError, match=f"has token {token} at offset 1"):
        corpus([array_of([[0, token]])], 50).tokens(0, 0, 2)


def test_looking_at_all_finds_what_is_below_0_in_small_signed_numbers() -> None:
    signed = Array("'a.npy'", np.array([3, -3], dtype=np.int8), np.array([0, 2]), "a")
    with pytest.raises(ShapeError, match="has token -3 at offset 1"):
        corpus([signed], 1000).refuse_outside()


@pytest.mark.parametrize("token", [50, -1])
@pytest.mark.parametrize("place", range(8))
def test_looking_at_all_names_the_same_place(
    monkeypatch: pytest.MonkeyPatch, token: int, place: int
) -> None:
    monkeypatch.setattr(corpus_module, "BLOCK_TOKENS", 3)
    tokens = np.zeros(8, dtype=np.int32)
    tokens[place] = token
    bad = Array("'b.npy'", tokens, np.array([0, 2, 2, 5, 8]), "b")
    document, offset = [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2)][place]
    with pytest.raises(ShapeError) as refusal:
        corpus([FIRST, bad], 50).refuse_outside()
    expected = f"document {document} of 'b.npy' has token {token} at offset {offset}, "
    assert refusal.value.message.startswith(expected)


def test_looking_at_all_passes_over_numbers_that_cannot_be_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(corpus_module.Corpus, "_refuse_block", None)  # would not survive a call
    small = Array("'a.npy'", np.zeros(4, dtype=np.uint8), np.array([0, 4]), "a")
    corpus([small], 256).refuse_outside()
    with pytest.raises(TypeError):
        corpus([small], 255).refuse_outside()


def test_the_fingerprint_knows_the_arrays_and_their_order() -> None:
    marks = {
        corpus(arrays, 100).fingerprint
        for arrays in ([FIRST], [SECOND], [FIRST, SECOND], [SECOND, FIRST])
    }
    assert len(marks) == 4
