"""PyTorch's CSV of actions: one row per device, one cell per action, in order.

`torch.distributed.pipelining` writes and loads its schedules in this grammar ("compute_only"):

    0F0,0F1,,0B0,0B1                stage 0: forward of microbatch 0, ...; empty cells say nothing
    1F0,1I0,(1F1;1B0)OVERLAP_F_B    I and W are the halves of a backward; an overlap is a pair

Reading: the shape is inferred from the actions. Files with communication ("compute_comms") are read
too: sends, receives, gathers and reductions are left out with a warning, because here they follow
from the order.
Writing: what the grammar has no word for is refused by name. Cost shares and boundary sizes do not
belong to an order, and are left out.
"""

import re
from collections.abc import Iterator, Set
from typing import Any
from warnings import warn

from penstock.core.ops import KINDS, Op
from penstock.core.schedule import Schedule
from penstock.core.shape import MAX_OPS, Shape
from penstock.core.table import Table
from penstock.errors import FormatError, ShapeError
from penstock.files._bounds import missing_ops

__all__ = ["dumps", "loads"]

_Pair = tuple[Op, ...]

_CAN_SAY = "FBIW"
_COMPUTE = re.compile(r"([0-9]{1,9})([FBIW])([0-9]{1,9})", re.ASCII)
_OVERLAP = re.compile(r"\(([^()]*)\)OVERLAP_F_B", re.ASCII)
_COMMUNICATION = re.compile(
    r"[0-9]{1,9}(UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)[0-9]{0,9}", re.ASCII
)
_NUMBERED = "number stages and microbatches from 0, without gaps"
_ELSEWHERE = "write text lanes or JSON, which can say everything"


def loads(text: str, name: str = "") -> Schedule:
    """The schedule that rows of actions say, with the shape inferred from them."""
    rows = text.rstrip().split("\n")
    reader = _Reader()
    lanes = [list(reader.lane(number, row)) for number, row in enumerate(rows, 1)]
    try:
        shape = Shape(len(rows), reader.stages, (1,) * reader.microbatches)
    except ShapeError as error:
        raise FormatError(error.message, line=len(rows), hint=error.hint) from None
    if reason := missing_ops(shape, sum(map(len, lanes))):
        raise FormatError(reason, line=len(rows), hint=_NUMBERED)
    if reader.transfers:
        warn(
            f"{reader.transfers} sends and receives are not read and not checked: here transfers "
            "follow from the order",
            stacklevel=2,
        )
    return Schedule.of(name, shape, lanes)


class _Reader:
    """Rows of actions, read while their stages and microbatches are counted."""

    def __init__(self) -> None:
        self.stages = 0
        self.microbatches = 0
        self.transfers = 0

    def lane(self, line: int, row: str) -> Iterator[Any]:
        """The ops of a row; a pair is a tuple of ops."""
        cells, empty = row.split(","), True
        for number, cell in enumerate(cells):
            action = cell.strip().strip('"')
            try:
                ops = self._action(action)
            except ShapeError as error:
                column = len(",".join([*cells[:number], ""])) + cell.find(action) + 1
                raise FormatError(
                    error.message, line=line, column=column, hint=error.hint
                ) from None
            if ops:
                empty = False
                yield ops if len(ops) > 1 else ops[0]
        if empty:
            hint = "a row is the actions of one device; take it out, or give it some"
            raise FormatError("this row has no compute action", line=line, hint=hint)

    def _action(self, action: str) -> tuple[Op, ...]:
        """The ops of one cell: none, one, or the strands of an overlap."""
        if found := _COMPUTE.fullmatch(action):
            return (self._counted(found),)
        if not action:
            return ()
        if found := _COMMUNICATION.fullmatch(action):
            self.transfers += found[1].startswith(("SEND", "RECV"))
            return ()
        overlap = _OVERLAP.fullmatch(action)
        strands = overlap[1].split(";") if overlap else ()
        ops = [_COMPUTE.fullmatch(strand.strip()) for strand in strands]
        if len(ops) < 2 or not all(ops):
            raise ShapeError(
                f"{action[:40]!r} is not an action",
                hint="an action is STAGE F, B, I or W MICROBATCH, as 0F0, "
                "or an overlap of them, as (0F5;3B1)OVERLAP_F_B",
            )
        return tuple(self._counted(op) for op in ops if op)

    def _counted(self, found: re.Match[str]) -> Op:
        """The op of a match, whose stage and microbatch are counted."""
        stage, kind, mb = found.groups()
        op = Op(kind, int(stage), int(mb))
        if op.stage >= self.stages or op.mb >= self.microbatches:
            self._grow(op)
        return op

    def _grow(self, op: Op) -> None:
        self.stages = max(self.stages, op.stage + 1)
        self.microbatches = max(self.microbatches, op.mb + 1)
        if 2 * self.stages * self.microbatches > MAX_OPS:
            raise ShapeError(
                f"with {op} there are {self.stages:,} stages and {self.microbatches:,} "
                f"microbatches, above the limit of {MAX_OPS:,} ops",
                hint=_NUMBERED,
            )


def dumps(schedule: Schedule) -> str:
    """The schedule as rows of actions, or a refusal that names what they cannot say."""
    _refuse_ops(schedule.table)
    _refuse_shape(schedule)
    _refuse_annotations(schedule)
    overlaps, written = set(schedule.pairs), set[_Pair]()
    rows = [_row(ops, overlaps, written) for _, _, ops in schedule.table.lanes()]
    for pair in schedule.pairs:
        if pair not in written:
            raise ShapeError(
                f"{pair[0]} and {pair[1]} are a pair, but are not next to each other in one lane, "
                "as an OVERLAP_F_B of PyTorch's CSV must",
                hint=_ELSEWHERE,
            )
    return "".join(f"{','.join(row)}\n" for row in rows)


def _row(ops: list[Op], overlaps: Set[_Pair], written: set[_Pair]) -> list[str]:
    """The cells of one device; pairs that found their place are added to `written`."""
    cells: list[str] = []
    at = 0
    while at < len(ops):
        pair = tuple(ops[at : at + 2])
        if pair in overlaps:
            cells.append(f"({pair[0]};{pair[1]})OVERLAP_F_B")
            written.add(pair)
            at += 2
        else:
            cells.append(str(ops[at]))
            at += 1
    return cells


def _refuse_ops(table: Table) -> None:
    """Name the first op that the grammar cannot say."""
    for device, stream, ops in table.lanes():
        for op in ops:
            if stream != "compute":
                reason = f"only compute lanes exist there, and this is a {stream} lane"
            elif op.kind not in _CAN_SAY:
                reason = f"there is no action for a {KINDS[op.kind]}"
            elif op.slice:
                reason = "there are no slices"
            else:
                continue
            raise ShapeError(
                f"{op} on device {device} cannot be written in PyTorch's CSV: {reason}",
                hint=_ELSEWHERE,
            )


def _refuse_shape(schedule: Schedule) -> None:
    """Refuse what a reader could not infer from the actions alone."""
    shape, table = schedule.shape, schedule.table
    stages, microbatches = int(table.stage.max()) + 1, int(table.mb.max()) + 1
    problems = {
        "a microbatch with several slices": max(shape.slices) > 1,
        "skip edges": bool(shape.skips),
        "weightless stages": bool(shape.weightless),
        "weights on several devices": shape.copies > 1,
        "vocabulary shards": (shape.embed, shape.loss) != ("F", "F"),
        "a device without ops": len(table.lane_device) < shape.devices,
        "a stage without ops": stages != shape.stages,
        "a microbatch without ops": microbatches != shape.microbatches,
    }
    for problem, present in problems.items():
        if present:
            raise ShapeError(f"PyTorch's CSV cannot express {problem}", hint=_ELSEWHERE)


def _refuse_annotations(schedule: Schedule) -> None:
    """Refuse everything beside the lanes but overlaps of a forward with a backward."""
    annotations = {
        "the loan to": [loan.light for loan in schedule.loans],
        "the gang": schedule.gangs,
        "the wait of": [after.op for after in schedule.after],
        "the share of": [op for op, _ in schedule.shares],
        "the pair that starts with": [pair[0] for pair in schedule.pairs if not _overlap(pair)],
    }
    for what, ops in annotations.items():
        if ops:
            raise ShapeError(f"PyTorch's CSV cannot express {what} {ops[0]}", hint=_ELSEWHERE)


def _overlap(pair: _Pair) -> bool:
    return len(pair) == 2 and sorted(op.kind == "F" for op in pair) == [False, True]
