"""What the executor cannot do with a schedule.

A schedule may say more than the runtime has work for. Then it is refused by name before anything
starts.
"""

from penstock.arch.cell_shape import CellShape
from penstock.arch.config import ModelConfig
from penstock.core.loans import helps_of
from penstock.core.program import Program
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import RunError, ShapeError
from penstock.lower import lower


def refuse_unsupported(program: Program) -> None:
    """Refuse, by name, what the executor has no work for."""
    schedule = program.schedule
    shape = schedule.shape
    unsupported = {
        "`after` orders between devices:": _between_devices(schedule)[:3],
        "skip edges:": [f"{source}-{target}" for source, target in shape.skips],
        "vocabulary shards of layers cut at their attention:": _cut_beside_shards(shape)[:3],
    }
    for what, found in unsupported.items():
        if found:
            raise RunError(
                f"{schedule.name} has {what} {', '.join(found)}, which cannot be run",
                hint="it can be checked, simulated and drawn; choose a schedule without them to "
                "run it",
            )


def refuse_loans_in_cells(schedule: Schedule, cell: CellShape) -> None:
    """Refuse loans of attention work, and gangs that share it, which the ranks of a cell, or
    stages, cannot give or take."""
    if not (helps := helps_of(schedule)):
        return
    op, shares = schedule.table.op(helps[0].helped), "lends" if schedule.loans else "shares"
    problem = ""
    if cell.ring > 1:
        problem = f"the keys that {op} {shares} are on {cell.ring} ranks that pass them round"
    elif schedule.shape.weightless:
        problem = "stages of attention alone hand it to any device already"
    if problem:
        raise ShapeError(
            f"{schedule.name} {shares} attention work, but {problem}",
            hint="take tensor or ulysses ranks instead of a ring, or a schedule without loans and "
            "gangs",
        )


def refuse_subsampling(model: ModelConfig, schedule: Schedule, cell: CellShape) -> None:
    """Refuse a model that leaves out tokens where these are on several ranks, or where attention is
    computed elsewhere."""
    if model.subsampling is None:
        return
    problem, hint = "", "take a schedule of whole layers, without loans and gangs"
    if schedule.shape.weightless:
        problem = f"{schedule.name} cuts layers at their attention"
    elif helps_of(schedule):
        problem = f"{schedule.name} lends or shares attention work"
    elif cell.sequence > 1:
        problem = f"{cell.sequence} ranks share the tokens of each slice"
        hint = "take tensor ranks, or more devices, instead of ulysses and ring ranks"
    elif cell.ranks > 1 and "O" in schedule.table.kinds:
        problem = f"{schedule.name} offloads activations of {cell.ranks} ranks of each device"
        hint = "take one rank for each device, or a schedule without offloads"
    if problem:
        raise ShapeError(f"the model leaves out tokens, but {problem}", hint=hint)


def refuse_beside_groups(schedule: Schedule, rows: int) -> None:
    """Refuse what cannot be where ranks of a cell form groups with sequences of their own."""
    problem = ""
    if rows > 1:
        problem = f"{rows} sequences lie side by side"
    elif helps_of(schedule):
        problem = f"{schedule.name} lends or shares attention work"
    elif "O" in schedule.table.kinds:
        problem = f"{schedule.name} offloads activations"
    if problem:
        raise ShapeError(
            f"ranks of a cell form groups, but {problem}",
            hint="take one row, and a schedule without loans, gangs and offloads",
        )


def _cut_beside_shards(shape: Shape) -> list[str]:
    """Stages without weights, where embedding and head are not on stages."""
    return [f"stage {stage}" for stage in sorted(shape.weightless) if shape.shards]


def _between_devices(schedule: Schedule) -> list[str]:
    """Ops that wait for one of another device, from which they get nothing; copies may."""
    rows, device = schedule.table.rows_by_op, schedule.table.device
    found = [after for after in schedule.after if not {*"OL"} >= {op.kind for op in after}]
    on = {op: {int(device[row]) for row in rows[op]} for after in found for op in after}
    return [str(after.op) for after in found if on[after.op] != on[after.earlier]]


def why_not(schedule: Schedule) -> str:
    """What the executor has no work for; empty where it can run the schedule."""
    try:
        refuse_unsupported(lower(schedule))
    except RunError as refusal:
        return refusal.message
    return ""
