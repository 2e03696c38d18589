"""How many bytes a slice takes, beside what it keeps."""

import pytest
import torch

from model.attention.dense import Case, Sliced
from penstock.model.attention.slice_attention import SliceOfLayer, attention_forward
from penstock.run.observe.memory_meter import LiveBytes

pytestmark = pytest.mark.torch

CASE = Case((640, 640, 640), heads=4, kv_heads=2, size=16, dtype=torch.float32)
TOKENS = 640
LSE = 4 * 4 * TOKENS
"""Bytes of a slice's log-sum-exp: 4 heads in float32."""
QUERY = 4 * 4 * 16 * TOKENS
"""Bytes of a slice's queries, or of its output."""
KEY = QUERY // 2
"""Bytes of a slice's keys, or of its values."""


def test_keys_and_values_are_there_from_the_beginning() -> None:
    memory = CASE.memory(layers=3)
    assert memory.nbytes == 3 * 2 * 3 * KEY
    assert [tuple(keys.shape) for keys in memory.keys] == [(1, 2, 1920, 16)] * 3


def test_gradients_reach_as_far_as_the_past_of_the_last_slice() -> None:
    sliced = Sliced(CASE)
    assert sliced.memory is not None
    gradients = sliced.memory.open_gradients()
    assert gradients.nbytes == 0
    sliced.backward(sliced.pieces[2], sliced.saved[2].out)
    assert gradients.nbytes == 2 * 2 * KEY
    sliced.memory.close_gradients()
    assert sliced.memory.gradients is None


def test_layers_do_not_share_what_they_leave() -> None:
    memory = CASE.memory(layers=2)
    gradients = memory.open_gradients()
    keys, _ = gradients.reserve(1, memory.keys[1], 5)
    assert gradients.keys[0] is None
    assert keys.shape == (1, 2, 5, 16)
    gradients.settle(1, range(1), 3)
    assert (gradients.low(0, 0), gradients.low(1, 0)) == (1920, 3)


def test_a_forward_takes_its_output_and_one_more() -> None:
    """Output and log-sum-exp, those of the part that is merged, and one number per query for it.

    The first slice has no past, so its output comes in pieces: no more than that either.
    """
    q, k, v, _ = CASE.inputs()
    memory = CASE.memory()
    for piece in CASE.pieces():
        here = slice(piece.start, piece.end)
        memory.write(0, piece, k[:, :, here], v[:, :, here])
        with LiveBytes() as meter:
            meter.ignore(q, k, v, memory.keys[0], memory.values[0])
            own = (tensor[:, :, here] for tensor in (q, k, v))
            out, lse = attention_forward(*own, SliceOfLayer(piece, memory, 0))
            assert meter.level == QUERY + LSE
            assert (out.nbytes, lse.nbytes) == (QUERY, LSE)
        assert meter.peak <= 2 * (QUERY + LSE) + LSE


def test_a_backward_takes_its_gradients_and_a_block_more() -> None:
    """Those of queries, keys and values; those of one part, which has at most 512 keys; the past.

    A part's gradients are freed when the next part's are there, and grouped heads are folded:
    copies of queries, output, its gradient and the log-sum-exp.
    """
    sliced = Sliced(CASE)
    assert sliced.memory is not None
    sliced.memory.open_gradients()
    known = (sliced.g, sliced.memory.keys[0], sliced.memory.values[0])
    for piece in reversed(sliced.pieces):
        saved = sliced.saved[piece.slice]
        left = sliced.memory.gradients.nbytes if sliced.memory.gradients else 0
        with LiveBytes() as meter:
            meter.ignore(*known, *saved)
            g = sliced.g[:, :, piece.start : piece.end]
            found = sliced.backward(piece, g)
            own = sum(gradient.nbytes for gradient in found)
            assert own == QUERY + 2 * KEY
        assert sliced.memory.gradients is not None
        grown = sliced.memory.gradients.nbytes - left
        block = QUERY + 2 * KEY * 512 // TOKENS
        folded = 3 * QUERY + LSE
        assert meter.peak <= grown + own + 2 * block + folded
