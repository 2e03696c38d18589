"""Slices of attention against the definition, in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from loops import each
from model.attention.dense import Case, Sliced, cuts, dense, error, relative, starts
from penstock.errors import RunError
from penstock.model.attention.memory import KeyValueGradients, KeyValues
from penstock.model.attention.slice_attention import SliceOfLayer, attention_forward

pytestmark = pytest.mark.torch

EXACT = 1e-12

CASES = {
    "the whole sequence": Case((300,)),
    "the whole sequence in documents": Case((300,), ((0, 1, 2, 130, 299),)),
    "even slices": Case((64, 64, 64, 64)),
    "a triangle that is cut": Case((150, 400)),
    "as many key heads as heads": Case((20, 30), heads=3, kv_heads=3),
    "grouped heads": Case((20, 30), heads=6, kv_heads=2),
    "grouped heads on long slices": Case((100, 800), heads=4, kv_heads=2, size=2),
    "ragged slices": Case((70, 1, 33, 2, 5)),
    "slices of one token": Case((1,) * 6),
    "several rows": Case((20, 30), ((0,), (0,), (0,))),
    "documents that start in a slice": Case((20, 20, 20), ((0, 7, 33, 47),)),
    "documents that start where slices do": Case((20, 20, 20), ((0, 20, 40),)),
    "a document over all slices after a short one": Case((20, 20, 20), ((0, 3),)),
    "documents of one token": Case((5, 5, 5), ((0, 4, 5, 6, 10, 14),)),
    "only documents of one token": Case((3, 3), ((0, 1, 2, 3, 4, 5),)),
    "a past that the last slice does not reach": Case((20, 20, 20, 20), ((0, 60),)),
    "rows with different documents": Case((20, 20, 20), ((0,), (0, 20), (0, 33, 45), (0, 59))),
    "rows with the same documents": Case((20, 20), ((0, 25), (0, 25))),
}


@pytest.mark.long
@each("case", CASES.values(), ids=CASES.keys())
def test_slices_give_what_the_definition_gives(case: Case) -> None:
    assert error(case) <= EXACT


@st.composite
def cases(draw: st.DrawFn) -> Case:
    length = draw(st.integers(1, 48))
    inner = st.lists(st.integers(1, max(length - 1, 1)), unique=True, max_size=6).map(sorted)
    ends = [end for end in draw(inner) if end < length] + [length]
    kv_heads = draw(st.integers(1, 3))
    rows = draw(st.integers(1, 3))
    documents = [tuple(start for start in draw(inner) if start < length) for _ in range(rows)]
    return Case(
        cuts(ends),
        tuple((0, *each) for each in documents),
        heads=kv_heads * draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        size=draw(st.sampled_from((1, 3, 8))),
    )


@settings(max_examples=60, deadline=None)
@given(cases())
def test_any_slices_and_documents_give_what_the_definition_gives(case: Case) -> None:
    assert error(case) <= EXACT


def test_float32_is_as_good_as_the_whole_sequence_at_once() -> None:
    lengths = (100, 60, 90)
    whole = error(Case((250,), dtype=torch.float32))
    assert error(Case(lengths, dtype=torch.float32)) <= max(2 * whole, 1e-6)


def test_bfloat16_on_the_cpu_loses_no_more_than_some_roundings() -> None:
    """One rounding of bfloat16 is 2^-9 of the value; merging adds two to that of the output."""
    assert error(Case((100, 60, 90), dtype=torch.bfloat16)) <= 8 * 2**-9


def test_without_the_gradients_of_later_slices_the_earlier_ones_are_wrong() -> None:
    """Forgetting what was left must show; else the comparisons above would prove nothing."""
    case = CASES["even slices"]
    _, (dq, dk, dv) = dense(case)

    def forget(memory: KeyValues) -> None:
        gradients = memory.gradients
        assert gradients is not None
        for buffer in (*gradients.keys, *gradients.values):
            if buffer is not None:
                buffer.zero_()

    ours = Sliced(case).gradients(between=forget)
    assert relative(ours[0], dq) <= EXACT
    assert relative(ours[1], dk) > 1e-2
    assert relative(ours[2], dv) > 1e-2


def test_what_was_never_left_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients begin as whatever the memory held; here it held no numbers."""
    reserve = KeyValueGradients.reserve

    def poisoned(self: KeyValueGradients, layer: int, like: Tensor, length: int) -> object:
        fresh = self.keys[layer] is None
        buffers = reserve(self, layer, like, length)
        if fresh:
            for buffer in buffers:
                buffer.fill_(torch.nan)
        return buffers

    monkeypatch.setattr(KeyValueGradients, "reserve", poisoned)
    for case in CASES.values():
        assert error(case) <= EXACT


@pytest.mark.parametrize("name", ["ragged slices", "rows with different documents"])
def test_a_second_run_is_equal_bit_for_bit(name: str) -> None:
    first, second = Sliced(CASES[name]), Sliced(CASES[name])
    assert torch.equal(first.out, second.out)
    for one, other in zip(first.gradients(), second.gradients()):
        assert torch.equal(one, other)


def test_attending_again_uses_the_memory_and_is_equal_bit_for_bit() -> None:
    """Gradients too; the keys that it is given then are other ones, which must not matter."""
    first, again = Sliced(CASES["ragged slices"]), Sliced(CASES["ragged slices"])
    again.saved = [
        again.again(piece, q, torch.zeros_like(k), v)
        for (q, k, v), piece in zip(again.inputs, again.pieces)
    ]
    assert torch.equal(first.out, again.out)
    for one, other in zip(first.gradients(), again.gradients()):
        assert torch.equal(one, other)


def test_the_memory_has_the_keys_and_values_of_all_slices() -> None:
    case = CASES["even slices"]
    memory = Sliced(case).memory
    assert memory is not None
    assert torch.equal(memory.keys[0], case.inputs()[1])
    assert torch.equal(memory.values[0], case.inputs()[2])


def test_output_and_gradients_lie_token_by_token() -> None:
    """So that the projection that follows reads them without a copy."""
    for name in ("the whole sequence", "even slices", "rows with different documents"):
        sliced = Sliced(CASES[name])
        for saved in sliced.saved:
            assert saved.out.transpose(1, 2).is_contiguous(), name
            assert saved.out.shape == saved.q.shape
        if sliced.memory is not None:
            sliced.memory.open_gradients()
        found = sliced.backward(sliced.pieces[-1], sliced.saved[-1].out)
        assert all(each.transpose(1, 2).is_contiguous() for each in found), name


def test_a_gradient_without_memory_of_its_own_is_taken() -> None:
    """A sum's gradient is one number seen everywhere."""
    sliced = Sliced(Case((12,)))
    like = sliced.saved[0].out
    one = sliced.backward(sliced.pieces[0], torch.ones((), dtype=like.dtype).expand(like.shape))
    other = sliced.backward(sliced.pieces[0], torch.ones_like(like))
    assert all(map(torch.equal, one, other))


def test_a_slice_without_a_memory_is_refused() -> None:
    case = Case((4, 4))
    q, k, v, _ = (tensor[:, :, :4] for tensor in case.inputs())
    with pytest.raises(RunError, match="slice 1 of microbatch 0 has no memory"):
        attention_forward(q, k, v, SliceOfLayer(case.pieces()[1], None, 0))


def test_a_backward_that_was_not_opened_is_refused() -> None:
    sliced = Sliced(Case((4, 4)))
    with pytest.raises(RunError, match="slice 1 of microbatch 0 has nowhere to leave"):
        sliced.backward(sliced.pieces[1], sliced.saved[1].out)


def test_whole_numbers_are_refused() -> None:
    case = Case((4,), dtype=torch.int64)
    q, k, v, _ = case.inputs()
    with pytest.raises(RunError, match=r"no attention is known for torch\.int64 on cpu"):
        attention_forward(q, k, v, SliceOfLayer(case.pieces()[0], None, 0))


def test_starts_of_the_cases_lie_in_their_sequences() -> None:
    for case in CASES.values():
        assert starts(case.lengths)[-1] < case.length
        assert all(row[0] == 0 and row[-1] < case.length for row in case.documents)
