"""Attention on a ring of ranks against the definition, in float64."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from loops import each
from model.attention.dense import Case, Gradients, cuts
from model.attention.ring_ranks import RingRank, ring_errors, ring_of, whole
from model.parallel.threads import ThreadGroup, run_ranks
from penstock.errors import RunError
from penstock.model.attention import table
from penstock.model.attention.aten import Output
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.ring import RingSlice, ring_backward, ring_forward
from penstock.model.attention.ring_memory import KeyValueBlock
from penstock.model.parallel.group import Work

pytestmark = pytest.mark.torch

EXACT = 1e-12

CASES = {
    "the whole sequence": Case((48,)),
    "the whole sequence in documents": Case((48,), ((0, 1, 2, 13, 47),)),
    "even slices": Case((24, 24, 24)),
    "unequal slices": Case((17, 30)),
    "unequal slices with short ones": Case((11, 3, 26)),
    "slices of one token": Case((1, 1, 1)),
    "fewer tokens than chunks": Case((3,)),
    "one token": Case((1,)),
    "grouped heads": Case((20, 31), heads=6, kv_heads=2),
    "as many key heads as heads": Case((20, 31), heads=3, kv_heads=3),
    "several rows": Case((20, 31), ((0,), (0,))),
    "documents that start in a slice": Case((20, 20, 20), ((0, 7, 33, 47),)),
    "documents that start where slices do": Case((20, 20, 20), ((0, 20, 40),)),
    "a document over all slices after a short one": Case((20, 20, 20), ((0, 3),)),
    "only documents of one token": Case((3, 3), ((0, 1, 2, 3, 4, 5),)),
    "a past that the last slice does not reach": Case((20, 20, 20), ((0, 40),)),
    "rows with different documents": Case((20, 13, 20), ((0,), (0, 20, 37))),
    "a triangle that is cut": Case((700, 300), heads=1, size=2),
}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@each("case", CASES.values(), ids=CASES.keys())
def test_a_ring_gives_what_the_definition_gives(ranks: int, case: Case) -> None:
    assert max(ring_errors(case, ring_of(case, ranks))) <= EXACT


@st.composite
def cases(draw: st.DrawFn) -> Case:
    length = draw(st.integers(1, 30))
    inner = st.sets(st.integers(1, length), max_size=3)
    rows = draw(st.integers(1, 2))
    documents = [sorted(start for start in draw(inner) if start < length) for _ in range(rows)]
    kv_heads = draw(st.integers(1, 2))
    return Case(
        cuts(sorted({*draw(inner), length})),
        tuple((0, *starts) for starts in documents),
        heads=kv_heads * draw(st.integers(1, 2)),
        kv_heads=kv_heads,
        size=draw(st.sampled_from((1, 3))),
    )


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(1, 5))
def test_any_slices_and_documents_give_what_the_definition_gives(case: Case, ranks: int) -> None:
    assert max(ring_errors(case, ring_of(case, ranks))) <= EXACT


class ForgetfulRank(RingRank):
    """Drops what a slice has left to those before it."""

    def between(self) -> None:
        assert self.memory is not None
        self.memory.open_gradients()


def test_without_the_gradients_of_later_slices_the_earlier_ones_are_wrong() -> None:
    """Forgetting what was left must show; else the comparisons above would prove nothing."""
    case = CASES["even slices"]
    out, dq, dk, dv = ring_errors(case, ring_of(case, 2, ForgetfulRank))
    assert max(out, dq) <= EXACT
    assert min(dk, dv) > 1e-2


def test_without_the_gradients_that_follow_a_block_the_result_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = CASES["the whole sequence"]
    monkeypatch.setattr(KeyValueBlock, "add_at_end", lambda block, other: None)
    out, dq, dk, dv = ring_errors(case, ring_of(case, 3))
    assert max(out, dq) <= EXACT
    assert min(dk, dv) > 1e-2


@pytest.mark.parametrize("name", ["unequal slices", "rows with different documents"])
def test_a_second_run_is_equal_bit_for_bit(name: str) -> None:
    first, second = (whole(ring_of(CASES[name], 3)) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert all(map(torch.equal, first[1], second[1]))


class RecomputingRank(RingRank):
    """Attends once more before the backward, with keys that are wrong where they are given."""

    def backward(self, saved: list[AttentionSaved]) -> Work[list[Gradients]]:
        again = []
        for piece, (q, k, v, *_) in zip(self.pieces, saved):
            wrong = torch.zeros_like(k), torch.zeros_like(v)
            output = yield from ring_forward(q, *wrong, self.at(piece), self.group)
            again.append(AttentionSaved(q, k, v, *output))
        return (yield from super().backward(again))


def test_attending_again_uses_the_memory_and_is_equal_bit_for_bit() -> None:
    case = CASES["unequal slices with short ones"]
    (_, first), (_, again) = (whole(ring_of(case, 3, kind)) for kind in (RingRank, RecomputingRank))
    assert all(map(torch.equal, first, again))


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, EXACT), (torch.bfloat16, 8 * 2**-9)])
def test_the_kernel_that_serves_everything_serves_a_ring(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, limit: float
) -> None:
    monkeypatch.setattr(table, "BACK_ENDS", table.BACK_ENDS[-1:])
    case = replace(CASES["rows with different documents"], dtype=dtype, heads=4, kv_heads=2)
    assert max(ring_errors(case, ring_of(case, 3))) <= limit


@pytest.mark.long
def test_in_bfloat16_many_ranks_are_nearly_as_good_as_one() -> None:
    """Blocks are joined in float32, so the output is rounded once; gradients of keys and values
    are rounded once by every rank that adds to them."""
    case = Case((50, 60, 90), dtype=torch.bfloat16)
    one, eight = (max(ring_errors(case, ring_of(case, ranks))) for ranks in (1, 8))
    assert eight <= 2 * one <= 8 * 2**-9


def test_output_and_gradients_lie_token_by_token() -> None:
    """So that the projection that follows reads them without a copy."""
    for name in ("the whole sequence", "several rows", "rows with different documents"):
        case = CASES[name]

        def work(group: ThreadGroup, case: Case = case) -> Work[list[Tensor]]:
            rank = RingRank(case, group)
            saved = yield from rank.forward()
            gradients = yield from rank.backward(saved)
            return [saved[0].out, *gradients[0]]

        for found in run_ranks(2, work):
            assert all(tensor.transpose(1, 2).is_contiguous() for tensor in found), name


def test_a_gradient_without_memory_of_its_own_is_taken() -> None:
    """A sum's gradient is one number seen everywhere."""

    def work(group: ThreadGroup) -> Work[list[Gradients]]:
        rank = RingRank(Case((12,)), group)
        (saved,) = yield from rank.forward()
        found = []
        for g in (saved.out.new_ones(()).expand(saved.out.shape), torch.ones_like(saved.out)):
            found.append((yield from ring_backward(g, saved, rank.at(rank.pieces[0]), group)))
        return found

    for one, other in run_ranks(2, work):
        assert all(map(torch.equal, one, other))


def test_queries_that_were_dealt_otherwise_are_refused() -> None:
    case = Case((12,))

    def work(group: ThreadGroup) -> Work[Output]:
        q, k, v, _ = (x[:, :, : 6 + group.index] for x in case.inputs())
        return (yield from ring_forward(q, k, v, RingSlice(case.pieces()[0], None, 0), group))

    message = "rank 1 of a ring of 2 is given 7 queries of slice 0, and has 6 of its positions 0 to"
    with pytest.raises(RunError, match=message):
        run_ranks(2, work)


def test_a_slice_without_a_memory_is_refused() -> None:
    case = Case((4, 4))

    def work(group: ThreadGroup) -> Work[Output]:
        q, k, v, _ = (x[:, :, 4:] for x in case.inputs())
        return (yield from ring_forward(q, k, v, RingSlice(case.pieces()[1], None, 0), group))

    with pytest.raises(RunError, match="slice 1 of microbatch 0 has no memory"):
        run_ranks(1, work)


def test_a_backward_that_was_not_opened_is_refused() -> None:
    def work(group: ThreadGroup) -> Work[Gradients]:
        rank = RingRank(Case((4, 4)), group)
        saved = (yield from rank.forward())[1]
        return (yield from ring_backward(saved.out, saved, rank.at(rank.pieces[1]), group))

    with pytest.raises(RunError, match="slice 1 of microbatch 0 has nowhere to leave"):
        run_ranks(2, work)
