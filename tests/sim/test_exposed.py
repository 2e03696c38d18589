from dataclasses import replace
from fractions import Fraction

import pytest

from penstock.arch.config import ModelConfig
from penstock.arch.mesh_shape import MeshShape
from penstock.arch.presets import model
from penstock.core.schedule import Schedule
from penstock.cost.cell_cost import CellCost
from penstock.cost.hardware import hardware
from penstock.cost.mesh_links import MeshLinks
from penstock.cost.workload import Workload
from penstock.schedules import build
from penstock.sim.exposed import ExposedTimes, exposed_times
from penstock.transform import offload_stages, shard

LLAMA, H200 = model("llama3-8b"), hardware("h200")


def exposed_in(
    schedule: Schedule,
    mesh: MeshShape,
    tokens: int = 4096,
    network: int = H200.network,
    trained: ModelConfig = LLAMA,
) -> ExposedTimes:
    slices = schedule.shape.slices[0]
    workload = Workload.of(schedule.shape, trained, [tokens // slices] * slices)
    links = MeshLinks(mesh, schedule.shape.devices, replace(H200, network=network))
    cost = CellCost.on_mesh(workload, schedule, links)
    return exposed_times(cost.workload.applied_to(schedule), cost)


def test_one_device_computes_and_waits_for_its_cell_all_the_time() -> None:
    found = exposed_in(build("seq1f1b", devices=1, microbatches=3, slices=2), MeshShape(tensor=4))
    busy = found.computing[0] + found.inside_exposed[0]
    assert float(found.timeline.makespan) == pytest.approx(busy, rel=1e-9)
    assert 0 < found.inside_exposed[0] < found.inside[0]
    assert found.boundaries_exposed == found.copies_exposed == 0
    assert set(found.sent) == {"tensor"}


def test_tensor_ranks_halve_the_computing_and_pay_for_it() -> None:
    schedule = build("1f1b", devices=4, microbatches=8)
    alone, shared = (exposed_in(schedule, MeshShape(tensor=n)) for n in (1, 2))
    assert shared.computing[1] == pytest.approx(alone.computing[1] / 2)
    assert alone.inside == (0,) * 4
    assert min(shared.inside_exposed) > 0
    assert shared.timeline.makespan > alone.timeline.makespan / 2


def test_copies_to_the_host_are_not_computing() -> None:
    """They take turns on a stream of their own, beside the ops of the device."""
    schedule = build("1f1b", devices=4, microbatches=8)
    plain, moved = (
        exposed_in(each, MeshShape()) for each in (schedule, offload_stages(schedule, range(4)))
    )
    assert moved.computing == plain.computing
    assert moved.timeline.schedule.table.kinds >= {"O", "L"}


def test_a_boundary_is_sent_once_by_all_ranks_of_a_cell_together() -> None:
    """Each hands on its share of the tokens: arXiv:2104.04473, section 4.1."""
    schedule = build("seq1f1b", devices=4, microbatches=8, slices=4)
    boundary = 8 * 4096 * LLAMA.hidden * LLAMA.element_bytes
    for mesh in (MeshShape(), MeshShape(tensor=2), MeshShape(tensor=2, sequence=2)):
        sent = exposed_in(schedule, mesh).sent["stages"]
        expected = [Fraction(n * boundary, mesh.cell.ranks) for n in (1, 2, 2, 1)]
        assert list(sent) == expected


def test_transfers_are_exposed_as_far_as_the_step_would_be_shorter_without() -> None:
    schedule = build("1f1b", devices=4, microbatches=4)
    mesh = MeshShape(tensor=8)
    fast, slow = (exposed_in(schedule, mesh, network=rate) for rate in (10**15, 10**9))
    assert fast.boundaries_exposed < Fraction(1, 10**5)
    both = slow.timeline.makespan - fast.timeline.makespan
    assert slow.boundaries_exposed == pytest.approx(both + fast.boundaries_exposed)
    assert slow.inside == fast.inside


def test_sums_over_replicas_are_hidden_where_gradients_are_complete_early() -> None:
    """arXiv:2211.05953: breadth-first exposes one reduction, depth-first nearly all of them."""
    mesh, trained = MeshShape(replicas=4), replace(LLAMA, vocabulary=1000)
    exposed = {}
    for name in ("breadth-first", "interleaved"):
        base = build(name, devices=4, microbatches=16, chunks=4)
        sharded = shard(base, weights=0, gradients=4)
        found = exposed_in(sharded, mesh, network=3 * 10**10, trained=trained)
        exposed[name] = found.copies_exposed
        assert sum(found.sent["copies"]) == 6 * trained.parameters  # 2 (4 - 1)/4 of 32 bits
    assert 0 < 2 * exposed["breadth-first"] < exposed["interleaved"]
