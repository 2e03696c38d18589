"""How many communicators a device is in: one for each direction and each group."""

import pytest

from penstock.core.schedule import Schedule
from penstock.cost.workload import Workload
from penstock.lower import lower_for_running
from penstock.plan.communicators import (
    COMMUNICATOR_BYTES,
    communication_bytes,
    communicators,
    with_communicators,
)
from penstock.plan.memory import footprints
from penstock.run.program.step_end import end_step
from penstock.schedules import build
from plan.test_memory import MODEL


@pytest.mark.parametrize(
    ("name", "devices", "pairs"),
    [
        ("1f1b", 1, (0,)),
        ("1f1b", 2, (2, 2)),
        ("1f1b", 4, (2, 4, 4, 2)),
        ("zb-v", 4, (2, 4, 4, 2)),
        ("interleaved", 4, (4, 4, 4, 4)),
    ],
)
def test_a_device_has_one_for_each_direction_whatever_moves_there(
    name: str, devices: int, pairs: tuple[int, ...]
) -> None:
    chunks = 2 if name == "interleaved" else None
    schedule = build(name, devices=devices, microbatches=4, chunks=chunks)
    groups = 2 if devices > 1 else 0  # all ranks, and the devices of the pipeline
    program = lower_for_running(schedule)
    assert communicators(program) == tuple(count + groups for count in pairs)
    both = groups + (1 if devices > 1 else 2)  # the replicas; alone they are also all ranks
    assert communicators(program, 2) == tuple(count + both for count in pairs)


@pytest.mark.torch
@pytest.mark.parametrize(("name", "more"), [("1f1b", (1, 0, 0, 1)), ("zb-v", (0, 0, 0, 0))])
def test_devices_that_share_a_weight_have_one_for_it(name: str, more: tuple[int, ...]) -> None:
    """Folded, the first stage and the last are on one device."""
    schedule = build(name, devices=4, microbatches=4)
    ties = ((0, schedule.shape.stages - 1),)
    plain, tied = (
        communicators(lower_for_running(end_step(schedule, reduced=False, ties=each)))
        for each in ((), ties)
    )
    assert tuple(b - a for a, b in zip(plain, tied)) == more


def _held(schedule: Schedule) -> Workload:
    return Workload.of(schedule.shape, MODEL, (64,))


def test_what_a_device_needs_grows_by_its_communicators_alone() -> None:
    schedule = build("1f1b", devices=4, microbatches=4)
    found = footprints(schedule, _held(schedule))
    counted = with_communicators(found, lower_for_running(schedule))
    assert [each.communication for each in counted] == [
        communication_bytes(count) for count in (4, 6, 6, 4)
    ]
    assert (communication_bytes(0), communication_bytes(2) - communication_bytes(1)) == (
        0,
        COMMUNICATOR_BYTES,
    )
    assert [each._replace(communication=0) for each in counted] == list(found)
    assert [each.communication for each in found] == [0] * 4
