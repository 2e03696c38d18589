"""Times of a rank: its part of the work, and what of its communication nothing hides."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from penstock.arch.cell_shape import CellShape
from penstock.arch.mesh_shape import MeshShape
from penstock.arch.presets import model
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.cost.cell_cost import CellCost, FreeBoundaries
from penstock.cost.cell_workload import rank_workload
from penstock.cost.collectives import Beside, Collective
from penstock.cost.hardware import Hardware, hardware
from penstock.cost.mesh_links import MeshLinks
from penstock.cost.model import Link
from penstock.cost.op_collectives import op_collectives
from penstock.cost.transformer import PICOSECOND, TransformerCost
from penstock.cost.workload import Workload
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.transform import split_backward
from transform.samples import ganged, lending

LLAMA, H200 = model("llama3-8b"), hardware("h200")
SLICED = build("seq1f1b", devices=2, microbatches=2, slices=2)
LENGTHS = (1024, 1024)
TWO = MeshShape(tensor=2)


def cost_of(
    schedule: Schedule = SLICED,
    mesh: MeshShape = TWO,
    machine: Hardware = H200,
    lengths: tuple[int, ...] = LENGTHS,
) -> CellCost:
    workload = Workload.of(schedule.shape, LLAMA, lengths)
    return CellCost.on_mesh(workload, schedule, MeshLinks(mesh, schedule.shape.devices, machine))


def row(schedule: Schedule, op: Op) -> int:
    return schedule.table.row_of(op)


def test_a_rank_by_itself_costs_what_a_device_costs() -> None:
    alone = cost_of(mesh=MeshShape())
    plain = TransformerCost.of(SLICED.shape, LLAMA, H200, LENGTHS)
    assert np.array_equal(alone.durations(SLICED).ticks, plain.durations(SLICED).ticks)
    assert not alone.inside(SLICED).total.any()


def exposed_alone(cost: CellCost, op: Op) -> float:
    """What an op waits for where no other one hides it."""
    each = op_collectives(cost.workload, cost.share, op)
    return sum(one.times * cost.exposed(one) for one in each)


def test_an_op_takes_its_computing_and_what_is_exposed() -> None:
    cost = cost_of()
    share = rank_workload(Workload.of(SLICED.shape, LLAMA, LENGTHS), CellShape(tensor=2))
    computing = TransformerCost(share, H200).durations(SLICED).ticks
    exposed = np.rint(cost.inside(SLICED).exposed * 1e12)
    assert np.abs(cost.durations(SLICED).ticks - computing - exposed).max() <= 1


def test_what_a_forward_sends_is_exposed_and_takes_bytes_over_bandwidth() -> None:
    cost, op = cost_of(), Op("F", 1, 0, 1)
    found = op_collectives(cost.workload, cost.share, op)
    sent = sum(each.times * each.sent for each in found)
    inside = cost.inside(SLICED)
    at = row(SLICED, op)
    assert inside.total[at] == pytest.approx(float(sent) / H200.link, rel=1e-12)
    assert inside.exposed[at] == inside.total[at]
    assert inside.sent["tensor"][at] == sent


def test_weight_gradients_hide_the_sums_of_a_whole_backward_alone() -> None:
    """An I waits for its sums; a B has the products of both blocks to do meanwhile."""
    split = split_backward(SLICED)
    whole, parted = cost_of().inside(SLICED), cost_of(split).inside(split)
    at, of_input = row(SLICED, Op("B", 0, 0, 1)), row(split, Op("I", 0, 0, 1))
    assert whole.total[at] == parted.total[of_input]
    assert whole.exposed[at] < parted.exposed[of_input] < parted.total[of_input]
    assert parted.total[row(split, Op("W", 0, 0, 1))] == 0


def test_a_slow_link_exposes_what_a_fast_one_hides() -> None:
    slow = cost_of(machine=replace(H200, link=10**9)).inside(SLICED)
    fast = cost_of().inside(SLICED)
    at = row(SLICED, Op("B", 0, 0, 1))
    hidden = [times.total[at] - times.exposed[at] for times in (slow, fast)]
    assert hidden[0] > hidden[1] > 0
    assert slow.total[at] == pytest.approx(450 * fast.total[at])


def test_exposed_is_what_computing_beside_it_does_not_cover() -> None:
    slow = 10**6
    cost = cost_of(machine=Hardware(slow, slow, slow, slow, slow, slow))
    message = Collective("pass_on", "ring", sent=Fraction(16384))
    for beside, left in ((Beside(), 16384), (Beside(linear=10_000), 6384), (Beside(20_000), 0)):
        exposed = cost.exposed(message._replace(beside=beside))
        assert exposed == pytest.approx(left / 10**6)


def test_a_ring_is_hidden_where_blocks_take_longer_than_messages() -> None:
    whole = build("1f1b", devices=2, microbatches=1)
    mesh = MeshShape(sequence=4, ring=4)
    long, short = (cost_of(whole, mesh, lengths=(n,)).inside(whole) for n in (65536, 64))
    forward, backward = (row(whole, Op(kind, 0, 0)) for kind in "FB")
    assert long.exposed[forward] == 0 < long.total[forward]
    last = long.total[backward] / 6  # gradients come home beside nothing
    assert long.exposed[backward] == pytest.approx(last)
    assert short.exposed[forward] > 0


def test_strands_of_a_pair_hide_what_the_other_waits_for() -> None:
    schedule = build("stp", devices=2, microbatches=8)
    cost = cost_of(schedule, lengths=(2048,))
    exposed, alone = cost.inside(schedule).exposed, cost.computing(schedule)
    assert schedule.pairs
    rows_of = schedule.table.rows_by_op
    for pair in schedule.pairs:
        rows = [rows_of[op][0] for op in pair]
        strand = [exposed_alone(cost, op) for op in pair]
        left = [max(0, e - (alone[rows].sum() - alone[at])) for e, at in zip(strand, rows)]
        assert exposed[rows].sum() == pytest.approx(max(left))
        assert exposed[rows].sum() < sum(strand)


def test_the_rank_that_computes_most_sets_the_pace() -> None:
    uneven = replace(LLAMA, heads=6, kv_heads=3, head_size=128)
    workload = Workload.of(SLICED.shape, uneven, LENGTHS)
    mesh = MeshShape(tensor=2)
    cost = CellCost.on_mesh(workload, SLICED, MeshLinks(mesh, 2, H200))
    assert cost.share.place.tensor == 1
    assert cost.share.part.kv_heads == 2


def test_boundaries_use_the_links_of_their_devices() -> None:
    schedule = build("1f1b", devices=4, microbatches=4)
    cost = cost_of(schedule, MeshShape(tensor=4), lengths=(4096,))
    assert cost.link(0, 1).per_byte * H200.link == 1
    assert cost.link(1, 2).per_byte * H200.network == 1
    assert FreeBoundaries.like(cost).link(1, 2) == Link()


@pytest.mark.parametrize(
    ("schedule", "what"),
    [
        (ganged(), "gangs, which are not simulated on cells of several ranks"),
        (lending(), "loans of attention work, which are not simulated on a ring"),
    ],
    ids=["gangs", "loans"],
)
def test_what_is_not_simulated_on_cells_is_refused(schedule: Schedule, what: str) -> None:
    lengths = (512,) * schedule.shape.slices[0]
    with pytest.raises(ShapeError, match=f"has {what}"):
        cost_of(schedule, MeshShape(sequence=2, ring=2), lengths=lengths)
    assert cost_of(schedule, MeshShape(replicas=2), lengths=lengths).links.ranks > 1


def test_ranks_of_a_cell_lend_the_attention_of_their_own_heads() -> None:
    schedule = lending()
    lengths = (512,) * schedule.shape.slices[0]
    alone = cost_of(schedule, MeshShape(), lengths=lengths)
    for mesh in (TWO, MeshShape(sequence=2)):
        shared = cost_of(schedule, mesh, lengths=lengths)
        for loan in schedule.loans:
            op, shape = loan.heavy, schedule.shape
            assert abs(shared.loan(op, shape) - alone.loan(op, shape) / 2) < PICOSECOND
            whole, half = alone.exchange(loan, shape), shared.exchange(loan, shape)
            assert (half.there, half.back) == (whole.there / 2, whole.back / 2)


def test_ranks_with_words_of_their_own_add_up_all_tokens() -> None:
    """Two of them hand on half of the tokens each, and put together parts of all."""
    schedule = build("vocab-1f1b", devices=2, microbatches=4)
    alone, shared = (cost_of(schedule, mesh, lengths=(2048,)) for mesh in (MeshShape(), TWO))
    assert alone.link(0, 1).joined * alone.workload.boundary_bytes(2048) == 2048 * LLAMA.hidden * 2
    assert shared.workload.boundary_bytes(2048) == alone.workload.boundary_bytes(2048) // 2
    assert (
        shared.link(0, 1).joined * shared.workload.boundary_bytes(2048) == 2048 * LLAMA.hidden * 2
    )
