"""The one loop that runs a program on a device.

It knows no schedule: it takes the steps of its lane one after the other, waits for what has to
arrive, lets the stage work, sends, frees, and posts the receives whose slot has become free. All
order comes from the program, which was proven before it came here.
"""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from penstock.core.meaning import Buf
from penstock.core.program import Program
from penstock.model.stages.piece import Piece
from penstock.model.stages.stage import Stage
from penstock.model.stages.weights import Weights
from penstock.run.comm.transport import Arrival, Transport
from penstock.run.execute.matmul_kernels import settle_products
from penstock.run.execute.spans import Clock, Spans
from penstock.run.program.compiled import (
    NOTHING,
    Lane,
    Places,
    Post,
    Step,
    compile_lane,
    forward_lane,
)

Values = list[Any]
ViewPair = tuple[Any, Any]
"""What a stage computes with and what it adds up: the views of its weights and gradients."""
NO_VIEWS: ViewPair = (None, None)
"""Of a stage without weights, or one that has them by itself."""
Work = Callable[[Stage, ViewPair, Piece, Values, Places], None]


class Boundary(NamedTuple):
    """What moves between two stages: [rows, tokens, width] of one type, on one device."""

    widths: tuple[int, ...]
    """Features over the boundary behind each stage but the last."""
    dtype: torch.dtype
    device: torch.device

    def width(self, buf: Buf) -> int:
        """Of a stage's input, or of the gradient of its output."""
        return self.widths[buf.number - (buf.name == "x")]

    def pattern(self, piece: Piece, width: int) -> Tensor:
        """One element that looks like the whole, for others to be made like it: that takes half
        the time of making one from its sizes."""
        size = (piece.rows, piece.end - piece.start, width)
        return torch.empty((), dtype=self.dtype, device=self.device).expand(size)


def _forward(stage: Stage, views: ViewPair, piece: Piece, values: Values, at: Places) -> None:
    values[at.out], values[at.act], values[at.kv] = stage.forward(
        views[0], piece, values[at.x], values[at.kv]
    )


def _forward_light(stage: Stage, views: ViewPair, piece: Piece, values: Values, at: Places) -> None:
    values[at.out], values[at.ckpt], values[at.kv] = stage.forward_light(
        views[0], piece, values[at.x], values[at.kv]
    )


def _recompute(stage: Stage, views: ViewPair, piece: Piece, values: Values, at: Places) -> None:
    values[at.act] = stage.recompute(views[0], piece, values[at.ckpt], values[at.kv])


def _input_gradient(
    stage: Stage, views: ViewPair, piece: Piece, values: Values, at: Places
) -> None:
    values[at.out], values[at.dkv], values[at.stash] = stage.input_gradient(
        *views, piece, values[at.act], values[at.g], values[at.kv], values[at.dkv]
    )


def _weight_gradient(
    stage: Stage, views: ViewPair, piece: Piece, values: Values, at: Places
) -> None:
    stage.weight_gradient(views[1], piece, values[at.stash])


def _backward(stage: Stage, views: ViewPair, piece: Piece, values: Values, at: Places) -> None:
    values[at.out], values[at.dkv], _ = stage.backward(
        *views, piece, values[at.act], values[at.g], values[at.kv], values[at.dkv]
    )


WORK: dict[str, Work] = {
    "F": _forward,
    "N": _forward_light,
    "R": _recompute,
    "B": _backward,
    "I": _input_gradient,
    "W": _weight_gradient,
}
"""What each kind of op does with its stage."""


class Observer(Protocol):
    """Whoever wants to know where the lane is: a watch, a recorder. Called around every op."""

    def waits(self, step: Step, post: Post) -> None: ...

    def runs(self, step: Step) -> None: ...

    def ran(self, step: Step) -> None: ...


class Quiet:
    """The observer that looks away."""

    def waits(self, step: Step, post: Post) -> None:
        return None

    def runs(self, step: Step) -> None:
        return None

    def ran(self, step: Step) -> None:
        return None


class Turn(NamedTuple):
    """A step with the work it does and the stage it does it with."""

    step: Step
    work: Work
    stage: Stage
    views: ViewPair
    ends: bool
    """Whether its output is a loss."""


class Executor:
    """Runs one device's lane of a program, batch after batch."""

    def __init__(
        self,
        program: Program,
        device: int,
        stages: Mapping[int, Stage],
        weights: Mapping[int, Weights] = MappingProxyType({}),
        *,
        transport: Transport,
        boundary: Boundary,
        clock: Clock = perf_counter_ns,
    ) -> None:
        self.program, self.stages, self.weights = program, stages, weights
        self.transport, self.boundary, self.clock = transport, boundary, clock
        self.lane: Lane = compile_lane(program, device)
        self.observer: Observer = Quiet()
        self.spans = Spans.begin(clock)
        self.after: dict[int, Callable[[], None]] = {}
        """What to do once the op of a row has run, as starting the reduction of its stage."""
        self._patterns: dict[int, Tensor] = {}
        """What each receive looks like; a plan's units keep their size from step to step."""
        self._views = {
            stage: (stages[stage].views(own.value), stages[stage].views(own.grad))
            for stage, own in weights.items()
        }
        self._training = self._turns(self.lane, WORK)
        self._evaluation: list[Turn] = []

    def step(self, pieces: Sequence[Piece]) -> list[Tensor]:
        """Run the lane once over the units of a batch; returns the losses met, in lane order."""
        return self._run(self._training, self.lane.first, pieces, self.after)

    def evaluate(self, pieces: Sequence[Piece]) -> list[Tensor]:
        """Run the forwards of the lane alone, keeping nothing for a backward."""
        lane = forward_lane(self.lane)
        self._evaluation = self._evaluation or self._turns(
            lane, dict.fromkeys("FN", _forward_light)
        )
        return self._run(self._evaluation, lane.first, pieces, {})

    def _turns(self, lane: Lane, works: Mapping[str, Work]) -> list[Turn]:
        last = self.program.schedule.shape.stages - 1
        return [
            Turn(
                step,
                works[op.kind],
                stage,
                self._views.get(op.stage, NO_VIEWS),
                op.stage == last and op.kind in "FN",
            )
            for step in lane.steps
            for op, stage in ((step.op, self.stages[step.op.stage]),)
        ]

    def _run(
        self,
        turns: Sequence[Turn],
        first: Sequence[Post],
        pieces: Sequence[Piece],
        after: Mapping[int, Callable[[], None]],
    ) -> list[Tensor]:
        settle_products(self.boundary.dtype)
        values: Values = [None] * self.lane.places
        arrivals: dict[int, Arrival] = {}
        losses: list[Tensor] = []
        observer, clock, transport = self.observer, self.clock, self.transport
        self.spans = spans = Spans.begin(clock)
        for post in first:
            self._receive(post, pieces, values, arrivals)
        for step, work, stage, views, ends in turns:
            for post in step.waits:
                observer.waits(step, post)
                arrivals.pop(post.tag).wait()
            observer.runs(step)
            spans.start.append(clock())
            work(stage, views, pieces[step.unit], values, step.places)
            spans.end.append(clock())
            observer.ran(step)
            values[NOTHING] = None  # an op without keys and values has put its None there
            if ends:
                losses.append(values[step.places.out])
            for post in step.sends:
                transport.send(post, values[post.place])
            for place in step.frees:
                values[place] = None
            for post in step.posts:
                self._receive(post, pieces, values, arrivals)
            if step.row in after:
                after[step.row]()
        transport.drain()
        return losses

    def _receive(
        self, post: Post, pieces: Sequence[Piece], values: Values, arrivals: dict[int, Arrival]
    ) -> None:
        """Post a receive into memory of its own: what is received may outlive its slot."""
        if post.tag not in self._patterns:
            width = self.boundary.width(post.buf)
            self._patterns[post.tag] = self.boundary.pattern(pieces[post.unit], width)
        values[post.place] = tensor = torch.empty_like(self._patterns[post.tag])
        arrivals[post.tag] = self.transport.receive(post, tensor)
