"""Runs in which every two things meet that a schedule can be combined with."""

from dataclasses import replace
from functools import cache

from covering import Row, covering
from penstock.arch.cell_shape import CellShape
from penstock.core.loans import helps_of
from penstock.core.schedule import Schedule
from penstock.errors import PenstockError, ShapeError
from penstock.run.program.unsupported import refuse_loans_in_cells, why_not
from penstock.schedules import find, registry
from penstock.transform import CHANGES, combine
from penstock.verify.cases import CaseSizes
from penstock.verify.changes import equal_layers, even_lengths, with_few_buffers
from penstock.verify.scale import CPU
from penstock.verify.variants import Batch, Trial, TrialWork

AXES = {
    "schedule": (*registry(),),
    **dict.fromkeys(CHANGES, (False, True)),
    "tensor": (1, 2),
    "sequence": ("alone", "ulysses", "ring"),
    "shard": ("none", "optimizer", "full"),
    "replicas": (1, 2),
    "tied": (False, True),
}

DEVICES = {1: 4, 2: 2, 4: 2, 8: 1}
"""Devices by how many ranks stand where one could: 4 or 8 processes, which are started once."""


def cell_of(row: Row) -> CellShape:
    ulysses, ring = (1 + (row["sequence"] == kind) for kind in ("ulysses", "ring"))
    return CellShape(row["tensor"], ulysses, ring)


def devices_of(row: Row) -> int:
    return DEVICES[row["replicas"] * cell_of(row).ranks]


@cache
def schedule_of(name: str, devices: int, changes: frozenset[str]) -> Schedule:
    """The smallest one of its kind, with these changes."""
    spec = find(name)
    case = next(CaseSizes((devices,), (2, 4, 6, 8), (4, 2, 1)).accepted(spec), None)
    if case is None:
        raise ShapeError(f"{name} does not run on {devices} device(s)", hint="take more")
    return combine(spec.build(case), changes)


@cache
def refusal(name: str, devices: int, changes: frozenset[str]) -> str:
    """Why a schedule cannot be run with these changes; empty where it can."""
    try:
        return why_not(schedule_of(name, devices, changes))
    except PenstockError as error:
        return error.message


@cache
def refusal_in_cell(name: str, devices: int, changes: frozenset[str], cell: CellShape) -> str:
    """Why a schedule that can be run cannot be on these cells."""
    try:
        refuse_loans_in_cells(schedule_of(name, devices, changes), cell)
    except PenstockError as error:
        return error.message
    return ""


def changes_of(row: Row) -> frozenset[str]:
    return frozenset(change for change in CHANGES if row[change])


def allowed(row: Row) -> bool:
    """What is shared is held by several ranks; the schedule can be run, and lends and shares no
    keys that go round in a ring."""
    if row["shard"] != "none" and row["replicas"] * cell_of(row).sequence == 1:
        return False
    if refusal(row["schedule"], devices_of(row), changes_of(row)):
        return False
    helped = helps_of(schedule_of(row["schedule"], devices_of(row), changes_of(row)))
    return not (helped and cell_of(row).ring > 1)


@cache
def design() -> list[Row]:
    return covering(AXES, allowed)


def trial_of(row: Row) -> Trial:
    """The run of a row."""
    schedule = schedule_of(row["schedule"], devices_of(row), changes_of(row))
    if row["shard"] == "full":
        schedule = with_few_buffers(schedule)
    shape = schedule.shape
    layers = len(shape.weightless) or max(2, shape.stages)
    model = replace(CPU.model, layers=layers, tied=row["tied"])
    length = max(CPU.length, CPU.slice_length * max(shape.slices))
    batch = Batch(row["replicas"] * shape.microbatches, 1, length, (1, 4))
    cut = (even_lengths(length, count, mb) for mb, count in enumerate(shape.slices))
    return Trial(
        "combination",
        schedule,
        TrialWork(model, batch),
        () if shape.weightless else equal_layers(layers, shape.stages),
        tuple(cut),
        row["replicas"],
        "float64",
        cell=cell_of(row),
        shard=row["shard"],
    )
