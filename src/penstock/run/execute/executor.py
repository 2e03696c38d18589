"""Runs a program on a device, batch after batch.

It knows no schedule: a lane is compiled once into calls with their handlers, and every batch is one
pass over them (run/execute/lane_run.py). All order comes from the program, which was proven before
it came here.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from time import perf_counter_ns
from typing import Any, NamedTuple

from torch import Tensor

from penstock.core.ops import SHARD_KINDS, Op, home_number
from penstock.core.program import Program
from penstock.model.attention.piece import Piece
from penstock.run.comm.side_stream import SideStream, Ticket
from penstock.run.comm.transport import Transport
from penstock.run.execute.boundary import Between, Landings, order_token
from penstock.run.execute.handlers import BEGINNINGS, HANDLERS, Handler
from penstock.run.execute.handlers.confirm import VoidStepError
from penstock.run.execute.handlers.forward_alone import forward_alone
from penstock.run.execute.handlers.loss_alone import loss_alone
from penstock.run.execute.handlers.statistics_alone import statistics_alone
from penstock.run.execute.lane_run import LaneRun, Stretch, Summing, Surroundings, Turn
from penstock.run.execute.loans import Helper, NoHelper
from penstock.run.execute.matmul_kernels import settle_products
from penstock.run.execute.observer import Observer, Quiet
from penstock.run.execute.spans import Clock, Spans
from penstock.run.program.begun_transfers import BegunTransfers, held_back
from penstock.run.program.calls import DROPPED, NOTHING, Call, Join, Lane, Post, forward_lane
from penstock.run.program.compile import compile_lane
from penstock.run.program.order_messages import TOKEN
from penstock.run.program.places import READ, WRITE, names_of
from penstock.run.program.values import Values

Subjects = Callable[[Op], Any]
"""What the handler of an op works with: a stage, or what the device keeps of it."""

Homes = Mapping[tuple[str, int], Any]
"""What belongs to stages and outlives steps: ("weight", 2) and ("dw", 2) of stage 2."""


_STARTS = {at: names_of(*at).index("g") for at in (("F", WRITE), ("B", READ))}
"""Where the gradient that a backward starts from stands among reads and writes."""

_LOGITS = names_of("T", READ).index("logits")
"""Where the logits of a shard stand among the reads of its second pass."""


_EVALUATING: Mapping[str, Handler] = {
    **dict.fromkeys("FN", forward_alone),
    "E": HANDLERS["E"],
    "S": statistics_alone,
    "T": loss_alone,
    "G": HANDLERS["G"],
}
"""Handlers of a pass that nothing goes back from."""


class LanePass(NamedTuple):
    """What is gone through with a batch: the whole lane, or a part of it."""

    calls: Sequence[Call]
    stretches: Sequence[Stretch]
    first: Sequence[Post]


def by_stage(stages: Mapping[int, Any]) -> Subjects:
    """Ops of a stage work with what stands under its number."""
    return lambda op: stages[op.stage]


def by_home(holders: Mapping[int, Any], stages: int) -> Subjects:
    """The same where vocabulary shards stand behind so many stages."""
    return lambda op: holders[home_number(op, stages)]


def no_sums(join: Join, parts: list[Any]) -> Any:
    """For programs without collectives."""
    raise AssertionError(f"nothing adds up {join.buf}")


class Executor:
    """One device's lane of a program, ready to be run."""

    def __init__(
        self,
        program: Program,
        device: int,
        subjects: Subjects,
        *,
        transport: Transport,
        boundary: Between,
        homes: Homes | None = None,
        sums: Summing = no_sums,
    ) -> None:
        self.program, self.boundary = program, boundary
        self.lane: Lane = compile_lane(program, device)
        self.observer: Observer = Quiet()
        self.clock: Clock = perf_counter_ns
        """What takes the marks around calls; whoever has another one sets it before a step."""
        self.helper: Helper = NoHelper()
        """What computes attention for ops of other devices; set where the program has loans."""
        self.spans = Spans.begin(self.clock, ())
        self.losses: Sequence[Tensor] = ()
        """Losses that the pass under way has met so far, in lane order."""
        self.totals: Mapping[str, Tensor] = {}
        """What the sums of the last pass came to, by the name of their buffer."""
        self.left: Sequence[Ticket] = ()
        """Sums of the last pass that nothing in it has waited for."""
        self.values: Values = []
        """What the places of the lane hold while a pass is under way."""
        self._begun = BegunTransfers.of(program, self.lane)
        self._subjects = subjects
        token = {TOKEN: order_token(boundary.device)}
        self._resident = _resident(self.lane, {**(homes or {}), **token})
        self._streams: dict[str, SideStream] = {}
        self._around = Surroundings(
            boundary.device,
            transport,
            Landings(boundary),
            sums,
            self._stream,
        )
        self.take(transport)

    def step(self, pieces: Sequence[Piece]) -> list[Tensor]:
        """Run the whole lane over the units of a batch; returns the losses met, in lane order."""
        return self._run(self._whole, pieces)

    def gradients(self, pieces: Sequence[Piece]) -> list[Tensor]:
        """Run the lane without its updates."""
        return self._run(self._without_updates, pieces)

    def evaluate(self, pieces: Sequence[Piece]) -> list[Tensor]:
        """Run the forwards of the lane alone, keeping nothing for a backward."""
        return self._run(self._forwards, pieces)

    @cached_property
    def _whole(self) -> LanePass:
        return self._pass(held_back(self.lane, self._begun), HANDLERS)

    @cached_property
    def _without_updates(self) -> LanePass:
        return self._pass(self.lane.without("UAC"), HANDLERS)

    @cached_property
    def _forwards(self) -> LanePass:
        return self._pass(forward_lane(self.lane), _EVALUATING)

    def take(self, transport: Transport) -> None:
        """Move tensors by this transport from here on."""
        self.transport = transport
        self._around = self._around._replace(transport=transport)

    def close(self) -> None:
        """End the threads of the side streams."""
        for stream in self._streams.values():
            stream.close()
        self._streams = {}

    def forget_sizes(self) -> None:
        """The batches that follow may have other lengths than those before."""
        self._around.landings.forget()

    def _run(self, over: LanePass, pieces: Sequence[Piece]) -> list[Tensor]:
        settle_products(self.boundary.dtype)
        self.spans = Spans.begin(self.clock, over.calls)
        self.values = values = self._resident.copy()
        run = LaneRun(self._around, self.observer, values, pieces, self.spans, self.helper)
        self.losses = run.losses
        try:
            run.go(over.stretches, over.first)
        except VoidStepError as void:
            run.drop(self._begun.unread)
            self.transport.drain()
            if void.refusal is not None:
                raise void.refusal from None
            return self._run(over, pieces)
        self.transport.drain()
        self.losses, self.totals, self.left, self.values = (), run.totals, run.left, []
        return run.losses

    def _pass(self, lane: Lane, handlers: Mapping[str, Handler]) -> LanePass:
        single = {call.number: self._turn(at, call, handlers) for at, call in enumerate(lane.calls)}
        inner = {number for strands in lane.braids.values() for number in strands[1:]}
        lending = {call.number: (call.number,) for call in lane.calls if call.meets}
        alone = {number: own for number, own in lending.items() if number not in inner}
        for number, strands in (alone | dict(lane.braids)).items():
            braided = tuple(single[strand] for strand in strands)
            single[number] = single[number]._replace(strands=braided, plain=False)
        turns = [turn for number, turn in single.items() if number not in inner]
        stretches = [
            Stretch(plain, tuple(each)) for plain, each in groupby(turns, attrgetter("plain"))
        ]
        return LanePass(lane.calls, stretches, lane.first)

    def _turn(self, at: int, call: Call, handlers: Mapping[str, Handler]) -> Turn:
        op, last = call.op, self.program.schedule.shape.stages - 1
        loss = _loss_place(call, handlers[op.kind], last)
        beside = call.awaits or call.awaited or call.joins or call.stream != "compute"
        begin = BEGINNINGS.get(op.kind)
        subject = None if call.away else self._subjects(op)
        return Turn(at, call, handlers[op.kind], subject, loss, begin=begin, plain=not beside)

    def _stream(self, name: str) -> SideStream:
        """The side stream of that name, started when it is first used."""
        if name not in self._streams:
            self._streams[name] = SideStream(name, self.boundary.device)
        return self._streams[name]


def _loss_place(call: Call, handler: Handler, last: int) -> int:
    """Where a call leaves a loss. One of the last stage: in the place of what a backward starts
    from, which backwards read and forwards write. All shards know the loss; that of the first one
    counts, and is in the place of the logits."""
    if call.away:
        return NOTHING
    if call.op.kind == "T" and call.op.stage == 0:
        return call.reads[_LOGITS]
    if call.op.kind in SHARD_KINDS or call.op.stage != last:
        return NOTHING
    if handler is forward_alone:
        place = call.writes[_STARTS["F", WRITE]]
        return place if place != DROPPED else NOTHING
    return call.reads[_STARTS["B", READ]] if call.op.kind in "BI" else NOTHING


def _resident(lane: Lane, homes: Homes) -> Values:
    """What the list of values holds before anything runs."""
    values: Values = [None] * lane.places
    for key, place in lane.homes.items():
        values[place] = homes.get(key)
    return values
