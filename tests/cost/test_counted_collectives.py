"""What is predicted of the collectives of a cell is what real layers send, op by op."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch

from cost.counted_ranks import OpCount, computed_meanwhile, counted
from loops import one_of
from penstock.arch.blocks import LayerBlock
from penstock.arch.cell_shape import CellShape
from penstock.arch.config import ModelConfig
from penstock.arch.parameters import layers_on_shards
from penstock.arch.presets import model
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.cost.op_collectives import op_collectives
from penstock.cost.rank_share import RankShare
from penstock.cost.workload import Workload
from penstock.schedules import build
from penstock.transform import recompute_all, split_backward

pytestmark = [pytest.mark.torch, pytest.mark.long]

TINY = replace(model("tiny"), layers=3, vocabulary=26, element_bytes=4)
ODD = replace(TINY, hidden=12, ffn=10, heads=6, kv_heads=3, head_size=4)
NORMED = replace(TINY, qk_norm=True, qk_norm_over="projection", norms="after")
WINDOWED = replace(TINY, window=5, window_pattern=(True, False))
WIDTHS = ((192, True), (20, False), (36, False), (8, True), (10, True))
BLOCKS = replace(TINY, layers=5, blocks=tuple(LayerBlock(*each) for each in WIDTHS))
WHOLE = build("1f1b", devices=2, microbatches=2)
SLICED = build("seq1f1b", devices=2, microbatches=2, slices=2)
SCHEDULES = {
    "1f1b": (WHOLE, (11,)),
    "seq1f1b": (SLICED, (9, 6)),
}
CELLS = {
    "tensor": CellShape(tensor=2),
    "tensor, replicated": CellShape(tensor=2, norms="replicated"),
    "ulysses": CellShape(ulysses=2),
    "ring": CellShape(ring=2),
    "ring of three": CellShape(ring=3),
    "tensor x ulysses": CellShape(tensor=2, ulysses=2),
    "tensor x ulysses, replicated": CellShape(tensor=2, ulysses=2, norms="replicated"),
    "ulysses x ring": CellShape(ulysses=2, ring=2),
}


def predicted(
    schedule: Schedule, config: ModelConfig, cell: CellShape, lengths: Sequence[int]
) -> list[dict[Op, OpCount]]:
    """What the cost model says of every op of every rank."""
    shape = schedule.shape
    workload, ends = Workload.of(shape, config, lengths), layers_on_shards(shape.embed, shape.loss)
    shares = [RankShare(config, cell, place) for place in cell.places()]
    return [
        {op: _count(workload, share, op, ends) for op in schedule.table.ops()} for share in shares
    ]


def _count(
    workload: Workload, share: RankShare, op: Op, on_shards: tuple[str, ...] = ()
) -> OpCount:
    count = OpCount(Counter(), Counter())
    for each in op_collectives(workload, share, op, on_shards):
        assert each.sent.denominator == 1
        count.sent[each.axis, each.name] += int(each.sent) * each.times
        count.calls[each.axis, each.name] += each.calls * each.times
    return count


@pytest.mark.parametrize(("named", "cell"), one_of(3, product(SCHEDULES, CELLS)))
def test_every_op_of_every_rank_sends_what_was_predicted(named: str, cell: str) -> None:
    schedule, lengths = SCHEDULES[named]
    assert predicted(schedule, TINY, CELLS[cell], lengths) == counted(
        schedule, TINY, CELLS[cell], lengths
    )


PASSES = {
    "vocab-1f1b": (build("vocab-1f1b", devices=2, microbatches=2), (11,)),
    "vocab-seq1f1b": (build("vocab-seq1f1b", devices=2, microbatches=2, slices=2), (9, 6)),
}


@pytest.mark.parametrize(("named", "cell"), one_of(3, product(PASSES, CELLS)))
def test_passes_over_shards_gather_what_stages_hand_on(named: str, cell: str) -> None:
    schedule, lengths = PASSES[named]
    found = counted(schedule, TINY, CELLS[cell], lengths)
    assert predicted(schedule, TINY, CELLS[cell], lengths) == found
    gathering = {op.kind for ops in found for op, count in ops.items() if count.calls}
    assert ("S" in gathering) == ("D" in gathering) == (CELLS[cell].tensor > 1)


@pytest.mark.parametrize("name", ["tensor", "tensor x ulysses, replicated"])
def test_norms_over_all_heads_add_up_a_number_for_each_token(name: str) -> None:
    found = counted(SLICED, NORMED, CELLS[name], (9, 6))
    assert predicted(SLICED, NORMED, CELLS[name], (9, 6)) == found


@pytest.mark.parametrize("name", ["tensor", "tensor x ulysses, replicated", "ring"])
def test_layers_that_differ_are_counted_one_by_one(name: str) -> None:
    found = counted(SLICED, BLOCKS, CELLS[name], (9, 6))
    assert predicted(SLICED, BLOCKS, CELLS[name], (9, 6)) == found


@pytest.mark.parametrize("name", ["ring", "ring of three"])
def test_a_ring_leaves_out_keys_that_no_window_has(name: str) -> None:
    found = counted(SLICED, WINDOWED, CELLS[name], (9, 6))
    assert predicted(SLICED, WINDOWED, CELLS[name], (9, 6)) == found
    assert found != counted(SLICED, TINY, CELLS[name], (9, 6))


@pytest.mark.parametrize("name", ["tensor x ulysses, replicated", "ring of three"])
def test_split_backwards_and_recomputed_forwards_are_counted_too(name: str) -> None:
    for change in (split_backward, recompute_all):
        schedule, lengths = change(SLICED), (9, 6)
        right = counted(schedule, TINY, CELLS[name], lengths)
        assert predicted(schedule, TINY, CELLS[name], lengths) == right


@pytest.mark.parametrize(
    "cell", [CellShape(tensor=4), CellShape(ulysses=4), CellShape(tensor=2, ulysses=2)], ids=str
)
def test_heads_and_tokens_that_do_not_divide_are_counted_too(cell: CellShape) -> None:
    """Four ranks have three key/value heads: one of these is held by two ranks."""
    assert predicted(SLICED, ODD, cell, (9, 6)) == counted(SLICED, ODD, cell, (9, 6))


def test_narrow_types_send_half_and_their_loss_does_not() -> None:
    cell, config = CellShape(tensor=2, ulysses=2), replace(TINY, element_bytes=2)
    right = counted(SLICED, config, cell, (9, 6), torch.bfloat16)
    assert predicted(SLICED, config, cell, (9, 6)) == right
    wide = counted(SLICED, TINY, cell, (9, 6))
    last = Op("B", 1, 0, 0)
    for narrow, twice in zip(right, wide):
        assert (
            2 * narrow[last].sent["ulysses", "exchange"] == twice[last].sent["ulysses", "exchange"]
        )
        assert (
            narrow[last].sent["tensor", "take_largest"]
            == twice[last].sent["tensor", "take_largest"]
        )


def test_a_rank_that_is_alone_sends_nothing() -> None:
    for op, count in predicted(SLICED, TINY, CellShape(), (9, 6))[0].items():
        assert not count.sent, op


@pytest.mark.parametrize("name", ["tensor", "tensor, replicated", "tensor x ulysses"])
def test_layers_compute_what_was_predicted_while_they_wait(name: str) -> None:
    """Products of matrices between the start of a call and the wait for it, call by call."""
    cell, config = CELLS[name], replace(TINY, layers=2)
    for schedule in (SLICED, split_backward(SLICED)):
        workload = Workload.of(schedule.shape, config, (9, 6))
        assert workload.layers == (1, 1)  # calls of an op are in their order
        found = computed_meanwhile(schedule, config, cell, (9, 6))
        for place, ops in zip(cell.places(), found):
            share = RankShare(config, cell, place)
            for op, calls in ops.items():
                expected = op_collectives(workload, share, op)
                assert calls == [(each.name, each.beside.linear) for each in expected], op
