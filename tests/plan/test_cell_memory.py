"""What all ranks of a run need, where devices are cells and ranks divide weights."""

import pytest

from penstock.arch.cell_shape import ONE_RANK, CellPlace, CellShape
from penstock.arch.config import ModelConfig
from penstock.arch.mesh_shape import MeshShape
from penstock.cost.cell_workload import CellWorkload, rank_workload, rank_workloads
from penstock.cost.workload import Workload
from penstock.plan.cell_memory import SharedWeights, fullest_rank, run_bytes
from penstock.plan.memory import Gathered, footprints, step_peaks
from penstock.schedules import build

MODEL = ModelConfig(8, 32, 64, 4, 2, 8, 100, element_bytes=4)
SCHEDULE = build("1f1b", devices=2, microbatches=4)
WORKLOAD = Workload.of(SCHEDULE.shape, MODEL, [64])


def _alone() -> int:
    return sum(device.total for device in footprints(SCHEDULE, WORKLOAD))


def test_ranks_that_are_alone_need_what_their_devices_need() -> None:
    assert run_bytes(SCHEDULE, WORKLOAD, MeshShape()) == _alone()
    assert run_bytes(SCHEDULE, WORKLOAD, MeshShape(replicas=3)) == 3 * _alone()


def test_tensor_ranks_hold_a_weight_once_and_sequence_ranks_each() -> None:
    one = sum(device.held for device in footprints(SCHEDULE, WORKLOAD))
    for cell, least in ((CellShape(tensor=2), 1), (CellShape(ulysses=2), 2)):
        held = [
            f.held for rank in rank_workloads(WORKLOAD, cell) for f in footprints(SCHEDULE, rank)
        ]
        assert sum(held) == pytest.approx(least * one, rel=0.02)  # norms are on all ranks


def test_a_rank_of_a_cell_needs_less_for_a_step_than_a_device_by_itself() -> None:
    alone = step_peaks(SCHEDULE, WORKLOAD)
    for cell in (CellShape(tensor=2), CellShape(ulysses=2), CellShape(ring=2)):
        for rank in rank_workloads(WORKLOAD, cell):
            assert all(
                own < 0.75 * all_of_it for own, all_of_it in zip(step_peaks(SCHEDULE, rank), alone)
            )


def test_owners_of_the_optimizer_divide_its_moments() -> None:
    mesh = MeshShape(replicas=2, tensor=2)
    none, optimizer = (
        run_bytes(SCHEDULE, WORKLOAD, mesh, shared=shared)
        for shared in (SharedWeights(), SharedWeights(2))
    )
    moments = 2 * sum(
        2 * device.optimizer // 4  # of weights, gradients and two moments
        for rank in rank_workloads(WORKLOAD, mesh.cell)
        for device in footprints(SCHEDULE, rank)
    )
    assert none - optimizer == pytest.approx(moments / 2, rel=0.01)


def test_stages_that_take_turns_in_buffers_need_less_than_owners_of_the_optimizer() -> None:
    schedule = build("interleaved", devices=2, microbatches=4, chunks=4)
    workload, mesh = Workload.of(schedule.shape, MODEL, [64]), MeshShape(replicas=4, tensor=2)
    turns = [[frozenset({first, first + 4}) for first in (d, d + 2)] for d in range(2)]
    gathered = [Gathered(users, users) for users in turns]
    none, optimizer, full = (
        run_bytes(schedule, workload, mesh, shared=shared)
        for shared in (SharedWeights(), SharedWeights(4), SharedWeights(4, gathered))
    )
    assert full < optimizer < none


def test_the_fullest_rank_is_the_one_with_the_largest_peaks() -> None:
    cell = CellShape(ring=2)
    peaks = [step_peaks(SCHEDULE, rank) for rank in rank_workloads(WORKLOAD, cell)]
    found = fullest_rank(SCHEDULE, WORKLOAD, cell)
    assert step_peaks(SCHEDULE, found) == max(peaks, key=sum)
    assert isinstance(found, CellWorkload)
    assert found.place == CellPlace(ring=1)  # its chunks follow each other, and are one part
    assert fullest_rank(SCHEDULE, WORKLOAD, ONE_RANK) is WORKLOAD


def test_slots_are_as_large_as_what_a_rank_hands_on() -> None:
    share = rank_workload(WORKLOAD, CellShape(tensor=2, ulysses=2))
    assert share.boundary_bytes(64) == WORKLOAD.boundary_bytes(64) // 4
