"""Pieces of a microbatch cover it once, in order."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.samples import microbatch_of
from penstock.model.attention.piece import pieces_of

pytestmark = pytest.mark.torch


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 3))
def test_pieces_put_together_are_the_microbatch(lengths: list[int], rows: int) -> None:
    microbatch = microbatch_of([[0]] * rows, sum(lengths))
    pieces = pieces_of(5, microbatch, lengths, 0.5)
    assert torch.equal(torch.cat([piece.tokens for piece in pieces], 1), microbatch.tokens)
    assert torch.equal(torch.cat([piece.labels for piece in pieces], 1), microbatch.labels)
    assert [piece.end - piece.start for piece in pieces] == lengths
    assert [piece.start for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]
    assert {
        (piece.mb, piece.slices, piece.length, piece.rows, piece.scale) for piece in pieces
    } == {(5, len(lengths), sum(lengths), rows, 0.5)}
    assert [piece.slice for piece in pieces] == list(range(len(lengths)))


def test_only_an_uncut_microbatch_is_whole() -> None:
    microbatch = microbatch_of([[0], [0, 3]], 8)
    assert [piece.whole for piece in pieces_of(0, microbatch, (8,), 1.0)] == [True]
    assert [piece.whole for piece in pieces_of(0, microbatch, (7, 1), 1.0)] == [False, False]


def test_a_microbatch_is_packed_if_any_row_holds_two_documents() -> None:
    for documents, packed in (([[0], [0]], False), ([[0], [0, 3]], True)):
        (piece,) = pieces_of(0, microbatch_of(documents, 8), (8,), 1.0)
        assert piece.packed is packed
        assert piece.documents == tuple(map(tuple, documents))
