"""Which schedules modules can run: each stage on one device, and no work but forward and
backward."""

from penstock.core.program import Program
from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.lower import lower_for_running
from penstock.run.program.layout import homes_of

PLAIN_KINDS = frozenset("FNRBIW")
"""Kinds of ops that a module has work for."""


def module_program(schedule: Schedule) -> Program:
    """The program of a schedule without an end of the step: the update is the caller's."""
    return lower_for_running(schedule)


def module_homes(schedule: Schedule, modules: int | None) -> tuple[int, ...]:
    """The device of each stage; what plain modules cannot do is refused."""
    shape = schedule.shape
    if other := sorted(schedule.table.kinds - PLAIN_KINDS):
        raise ShapeError(
            f"{schedule.name} has ops of kind {', '.join(other)}, which a plain module has no work "
            "for",
            hint=f"take a schedule whose ops are of the kinds {', '.join(sorted(PLAIN_KINDS))}",
        )
    if schedule.gangs or schedule.loans:
        raise ShapeError(
            f"{schedule.name} has attention that several devices compute together, which a module "
            "does by itself",
            hint="take a schedule without gangs and loans",
        )
    homes = tuple(home for home in homes_of(schedule) if home is not None)
    if len(homes) != shape.stages:
        raise ShapeError(
            f"{schedule.name} has stages without weights, which move from device to device",
            hint="take a schedule in which every stage has one device",
        )
    if modules not in (None, shape.stages):
        raise ShapeError(
            f"{modules} modules for the {shape.stages} stages of {schedule.name}",
            hint="give one module for each stage, in the order of the model",
        )
    return homes
