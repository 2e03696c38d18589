"""Runs in which every op waits its modelled time instead of computing.

More ranks than cores cannot compute side by side, but they can wait side by side. With real
processes, the real executor and real (small) transfers, the makespan of such a run says whether the
order, the transfers and the loop keep what the simulator promises.

    emulate(crew, schedule, shortest=0.02)      the shortest op waits 20 ms

What is executed is what is simulated: the ops of a pair, or of a loan, start when both can and end
together. An op that lends asks when it starts, and has its answer when the other one has waited its
time, which has that of the lent work in it. Vocabulary passes and copies to the host, free by
default, have times of their own. What vocabulary passes share is really brought together, and
copies wait on the streams that they run on.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import barrier, group

from penstock.bench.measure.emulated_shard import EmulatedShard, Waits, slice_number, wait
from penstock.bench.measure.real import side_group
from penstock.core.meaning import ATTENDING
from penstock.core.ops import SHARD_KINDS, Op
from penstock.core.schedule import Schedule
from penstock.cost.model import UnitCost
from penstock.data.batch import Microbatch
from penstock.lower import lower_for_running
from penstock.model.attention.op_loans import LentWork
from penstock.model.attention.piece import Piece, pieces_of
from penstock.model.parallel.group import Result, Work, WorkOrResult
from penstock.model.stages.stage import Backward, Forward
from penstock.run.comm.collective import add_up
from penstock.run.comm.gloo import Gloo
from penstock.run.execute.boundary import Boundary
from penstock.run.execute.executor import Executor, Subjects, by_home
from penstock.run.launch.worker_pool import Crew
from penstock.run.process.rendezvous import Connection
from penstock.run.program.calls import Join
from penstock.sim import simulate
from penstock.sim.loans import with_loans

ASKED = ANSWERED = 1
"""Messages of a loan, either way; both ends have begun with number 0."""

SHARD_TIMES = {"S": Fraction(1, 2), "T": Fraction(1, 2), "E": Fraction(1, 4), "D": Fraction(1, 4)}
"""Times of the passes over a vocabulary shard, where a forward of a device's stages takes 1."""
COPY_TIMES = {"O": Fraction(1, 2), "L": Fraction(1, 2)}
"""Times of copies to the host and back, in the same unit."""


class Emulated(NamedTuple):
    """What was promised and what was measured, in seconds."""

    simulated: float
    measured: float
    unit: float
    """Seconds that an op of cost 1 waited."""

    @property
    def error(self) -> float:
        return self.measured / self.simulated - 1


class EmulatedStage:
    """A stage that waits; what it hands on is real and has one number for each slice."""

    def __init__(self, stage: int, waits: Waits, spin: float) -> None:
        self.stage, self.waits, self.spin = stage, waits, spin

    def views(self, flat: Tensor) -> None:
        """There are no weights to see."""
        return

    def forward(
        self, weights: None, piece: Piece, x: Tensor | None, kv: Any
    ) -> WorkOrResult[Forward]:
        return self._done("F", piece, (slice_number(piece), None, None))

    def forward_light(
        self, weights: None, piece: Piece, x: Tensor | None, kv: Any
    ) -> WorkOrResult[Forward]:
        return self._done("N", piece, (slice_number(piece), None, None))

    evaluate = forward_light

    def recompute(self, weights: None, piece: Piece, ckpt: Any, kv: Any) -> WorkOrResult[None]:
        return self._done("R", piece, None)

    def backward(
        self,
        weights: None,
        gradients: None,
        piece: Piece,
        act: Any,
        g: Tensor | None,
        kv: Any,
        dkv: Any,
    ) -> WorkOrResult[Backward]:
        return self._done("B", piece, (slice_number(piece), None, None, slice_number(piece)))

    def input_gradient(
        self,
        weights: None,
        gradients: None,
        piece: Piece,
        act: Any,
        g: Tensor | None,
        kv: Any,
        dkv: Any,
    ) -> WorkOrResult[Backward]:
        return self._done("I", piece, (slice_number(piece), None, None, slice_number(piece)))

    def weight_gradient(self, gradients: None, piece: Piece, stash: Any) -> None:
        self._wait("W", piece)

    def _done(self, kind: str, piece: Piece, result: Result) -> WorkOrResult[Result]:
        if piece.loans is not None and piece.loans.lent:
            return self._lending(kind, piece, piece.loans.lent, result)
        self._wait(kind, piece)
        return result

    def _lending(
        self, kind: str, piece: Piece, lent: Sequence[LentWork], result: Result
    ) -> Work[Result]:
        for each in lent:
            each.peer.send(ASKED, torch.zeros(1))
        answers = [each.peer.receive(ANSWERED, torch.zeros(1)) for each in lent]
        self._wait(kind, piece)
        yield from answers
        return result

    def _wait(self, kind: str, piece: Piece) -> None:
        wait(self.waits[Op(kind, self.stage, piece.mb, piece.slice)], self.spin)


class EmulatedHelper:
    """Answers an op that lends; the time that it takes is in that of the op that helps. A member
    of a gang takes as long as the others."""

    def __init__(self, waits: Waits, spin: float) -> None:
        self.waits, self.spin = waits, spin

    def help(self, kind: str, stage: int, piece: Piece, lent: LentWork) -> Work[None]:
        if kind in ATTENDING:
            yield lent.peer.receive(ASKED, torch.zeros(1))
        if lent.has_own_keys:
            wait(self.waits[Op(kind, stage, piece.mb, piece.slice)], self.spin)
        if kind in ATTENDING:
            lent.peer.send(ANSWERED, torch.zeros(1))


class EmulatedActivation:
    """What is moved where nothing was saved: there is no memory to take or to give back."""

    is_split = False

    def let_go(self) -> None:
        return

    end = take_room = let_go


class EmulatedRoom(NamedTuple):
    """The host, to which one copy takes so many seconds."""

    seconds: float
    spin: float

    def choose(self, saved: None, piece: Piece) -> EmulatedActivation:
        return EmulatedActivation()

    def copy_out(self, moved: EmulatedActivation) -> None:
        wait(self.seconds, self.spin)

    def copy_in(self, moved: EmulatedActivation) -> None:
        wait(self.seconds, self.spin)


def add_up_parts(join: Join, parts: list[Tensor]) -> Tensor:
    """One number for each slice, over all ranks."""
    add_up(parts[0], side_group())
    return parts[0]


def emulate(crew: Crew, schedule: Schedule, *, shortest: float, spin: float) -> Emulated:
    """One step of a schedule in which the shortest op waits `shortest` seconds."""
    unit = shortest / min(filter(None, _times(schedule).values()))
    return emulate_at(crew, schedule, unit=unit, spin=spin)


def emulate_at(crew: Crew, schedule: Schedule, *, unit: float, spin: float) -> Emulated:
    """One step of a schedule in which an op of cost 1 waits `unit` seconds."""
    waits = {op: unit * time for op, time in _times(schedule).items()}
    measured = seconds_between(crew.run(emulated_step, schedule, waits, spin))
    return Emulated(unit * float(simulate(schedule, _cost()).makespan), measured, unit)


def _cost() -> UnitCost:
    return UnitCost(times=SHARD_TIMES | COPY_TIMES)


def _times(schedule: Schedule) -> dict[Op, float]:
    """What every op costs."""
    table, cost = schedule.table, _cost()
    durations = with_loans(schedule, cost, cost.durations(schedule))
    members = {op: len(table.rows_by_op[op]) for op in schedule.gangs}
    ticks = zip(table.ops(), durations.ticks.tolist())
    return {op: float(count * durations.tick) / members.get(op, 1) for op, count in ticks}


def seconds_between(ends: Sequence[tuple[float, float]]) -> float:
    """Seconds from the first rank's start to the last one's end."""
    return max(end for _, end in ends) - min(start for start, _ in ends)


def emulated_step(
    connection: Connection, schedule: Schedule, waits: Waits, spin: float
) -> tuple[float, float]:
    """When this rank's first op started and its last one ended, by the clock all ranks share."""
    rank = connection.rank
    stages = schedule.shape.stages
    mine = {op.stage for op in schedule.lane(rank) if op.kind not in SHARD_KINDS}
    held: dict[int, Any] = {stage: EmulatedStage(stage, waits, spin) for stage in mine}
    held[stages + rank] = EmulatedShard(rank, waits, spin)
    assert group.WORLD is not None
    transport = Gloo(group.WORLD)
    executor = Executor(
        lower_for_running(schedule),
        rank,
        _subjects(by_home(held, stages), waits, spin),
        transport=transport,
        boundary=Boundary((1,) * (stages - 1), torch.float32, torch.device("cpu")),
        sums=add_up_parts,
    )
    executor.helper = EmulatedHelper(waits, spin)
    pieces = _pieces(schedule)
    barrier()
    executor.step(pieces)
    transport.close()
    return executor.spans.start[0] / 1e9, executor.spans.end[-1] / 1e9


def _subjects(holders: Subjects, waits: Waits, spin: float) -> Subjects:
    """What each op works with."""
    return lambda op: EmulatedRoom(waits[op], spin) if op.kind in COPY_TIMES else holders(op)


def _pieces(schedule: Schedule) -> list[Piece]:
    """A token for each slice."""
    found: list[Piece] = []
    for mb, slices in enumerate(schedule.shape.slices):
        words = torch.zeros(1, slices, dtype=torch.int64)
        found += pieces_of(mb, Microbatch(words, words, ((0,),)), (1,) * slices, 1.0)
    return found
