"""Steps of a model on the same documents under a data policy, each planned while the one before
runs.

Where ops are to take a modelled time, each waits for the rest of it behind its own computing, with
fewer tokens in the place of the document's: more ranks than cores then have the times of ranks with
a core each. Documents of one length have the same tokens, so losses do not depend on the policy.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import barrier, broadcast_object_list

from penstock.arch.cell_shape import CellShape
from penstock.arch.config import ModelConfig
from penstock.bench.measure.emulated_shard import wait
from penstock.bench.measure.policy_plans import PolicyCase
from penstock.bench.measure.real import HOST
from penstock.core.kernel import compile_small_work
from penstock.core.ops import Op
from penstock.data.batch import IGNORE, Microbatch
from penstock.estimate.policies.arranged import ArrangedStep, DocumentRange, tokens_of
from penstock.estimate.policies.op_seconds import OpSeconds
from penstock.plan.sequence_groups.planning_process import PlanningProcess
from penstock.run.comm.mesh import make_mesh
from penstock.run.policies.one_ahead import MakingTimes, OneAhead
from penstock.run.policies.ragged_step import PlannedBatch
from penstock.run.process.rendezvous import Connection
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.program.token_groups import TokenGroup
from penstock.run.step.build import engine_on
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import NoUpdate
from penstock.run.step.state import begin

RankWaits = Sequence[OpSeconds]
"""Of each rank of a device that shares its tokens, or one for all."""


@dataclass(frozen=True)
class PolicyRun:
    """What is run."""

    case: PolicyCase
    model: ModelConfig
    divided: int = 1
    """Tokens of a document that stand for one that is computed."""
    spin: float = 0.0

    @property
    def cell(self) -> CellShape:
        return CellShape(ulysses=self.case.sequence)

    def layout(self) -> Layout:
        room = self.case.groups.capacity * self.case.sequence
        longest = 2 * max(self.case.longest, room) // self.divided + 64
        order = self.case.whole(1)
        return Layout.of(self.model, order, longest, dtype=torch.float32, cell=self.cell)

    def planned(self, layout: Layout, step: ArrangedStep) -> PlannedBatch:
        """The step plan of an arranged batch, and its tokens."""
        slices = tuple(
            tuple(tuple(map(self._divided, documents)) for documents in microbatch)
            for microbatch in step.slices
        )
        groups = tuple(
            tuple(
                TokenGroup(group.degree, tokens_of(tuple(map(self._divided, group.documents))))
                for group in some
            )
            for some in step.groups
        )
        lengths = tuple(tuple(map(tokens_of, microbatch)) for microbatch in slices)
        plan = StepPlan(layout, step.schedule, lengths, 1, groups)
        padded = step.padded or (False,) * len(slices)
        words = self.model.vocabulary
        batch = (_microbatch(each, words, padding=end) for each, end in zip(slices, padded))
        return PlannedBatch(plan, tuple(batch))

    def _divided(self, documents: DocumentRange) -> DocumentRange:
        """Each slice of a document has a token, however short it is."""
        start, stop = documents
        if self.divided == 1:
            return documents
        first = start // self.divided
        return first, first + max((stop - start) // self.divided, 1)


def _microbatch(
    slices: Sequence[Sequence[DocumentRange]], words: int, *, padding: bool
) -> Microbatch:
    """One row of the documents of some slices; a document that goes on follows its beginning."""
    sizes: list[int] = []
    for start, stop in (piece for documents in slices for piece in documents):
        if start and sizes:
            sizes[0] += stop - start  # only the first document of a slice goes on
        else:
            sizes.append(stop - start)
    rows = [_document(size, words) for size in sizes]
    if padding:
        rows[-1][1].fill_(IGNORE)
    tokens, labels = (torch.cat(parts)[None] for parts in zip(*rows))
    return Microbatch(tokens, labels, (tuple(accumulate([0, *sizes[:-1]])),))


def _document(size: int, words: int) -> tuple[Tensor, Tensor]:
    """Tokens that follow from the length alone, and the next one of each."""
    tokens = torch.randint(words, (size,), generator=torch.Generator().manual_seed(size))
    return tokens, torch.cat([tokens[1:], torch.full((1,), IGNORE)])


class ModelledStage:
    """A stage whose ops take at least so long."""

    def __init__(self, stage: Any, number: int, spin: float) -> None:
        self._stage, self._number, self._spin = stage, number, spin
        self.seconds: OpSeconds = {}

    def __getattr__(self, name: str) -> Any:
        work = getattr(self._stage, name)
        kind = _KIND_OF.get(name)
        return self._late(kind, work) if kind else work

    def _late(self, kind: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            began, piece = perf_counter(), given[_PIECE_OF[kind]]
            seconds = self.seconds.get(Op(kind, self._number, piece.mb, piece.slice), 0.0)
            result = work(*given)
            if isinstance(result, Generator):
                return self._ended(result, began, seconds)
            self._rest(began, seconds)
            return result

        return timed

    def _ended(self, work: Any, began: float, seconds: float) -> Any:
        result = yield from work
        self._rest(began, seconds)
        return result

    def _rest(self, began: float, seconds: float) -> None:
        wait(max(0.0, seconds - (perf_counter() - began)), self._spin)


_KIND_OF = {
    "forward": "F",
    "forward_light": "N",
    "recompute": "R",
    "backward": "B",
    "input_gradient": "I",
    "weight_gradient": "W",
}
_PIECE_OF = {"F": 1, "N": 1, "R": 1, "B": 2, "I": 2, "W": 1}
"""Which argument is the piece."""


class PolicyStep(NamedTuple):
    """One step, as a rank has seen it."""

    seconds: float
    """From the end of the step before to its own end, waiting for its plan included."""
    loss: float
    plan: MakingTimes


class Planner:
    """Plans the next batch while this one runs, as a training run does it."""

    def __init__(self, run: PolicyRun, policy: str, layout: Layout, batches: Sequence[Any]) -> None:
        self._run, self._policy, self._layout, self._batches = run, policy, layout, batches
        self._ahead = OneAhead(self._made)
        self._process = (
            PlanningProcess(run.case.planner)
            if policy == "flex" and torch.distributed.get_rank() == 0
            else None
        )
        self.times = MakingTimes(0.0, 0.0)
        self.prove: Callable[[StepPlan], object] = lambda plan: None
        """Proves and lowers a plan ahead of its step."""

    def take(self, number: int) -> PlannedBatch:
        if self._policy != "flex":
            made = self._ahead.take(number, min(number + 1, len(self._batches) - 1))
            self.times = self._ahead.times
            return made
        lengths, told = self._batches[number], [None]
        if self._process is not None:
            began = perf_counter()
            found = self._process.plan(lengths)
            self.times = MakingTimes(found.seconds, perf_counter() - began)
            told = [found.batch]  # type: ignore[list-item]
        broadcast_object_list(told, src=0)
        if self._process is not None and number + 1 < len(self._batches):
            self._process.ask(self._batches[number + 1])
        step = self._run.case.grouped(lengths, told[0])  # type: ignore[arg-type]
        return self._run.planned(self._layout, step)

    def _made(self, number: int) -> PlannedBatch:
        step = self._run.case.policies[self._policy](self._batches[number])
        with compile_small_work():
            planned = self._run.planned(self._layout, step)
            self.prove(planned.plan)
        return planned

    def close(self) -> None:
        self._ahead.close()
        if self._process is not None:
            self._process.close()


def policy_steps(
    connection: Connection,
    run: PolicyRun,
    policy: str,
    batches: Sequence[Sequence[int]],
    waits: Sequence[RankWaits] = (),
) -> list[PolicyStep]:
    """A step for each batch; with waits, which there are for each, ops take a modelled time."""
    layout = run.layout()
    with closing(Planner(run, policy, layout, batches)) as planner:
        first = planner.take(0)
        with closing(_engine(run, first.plan)) as engine:
            planner.prove = engine.programs.of
            return [
                _step(engine, planner, number, waits[number] if waits else ())
                for number in range(len(batches))
            ]


def _engine(run: PolicyRun, plan: StepPlan) -> Engine:
    mesh = make_mesh(1, run.case.devices, run.cell)
    engine = engine_on(mesh, plan, NoUpdate(), HOST)
    begin(engine, 1)
    for stage, held in engine.working.items():
        engine.working[stage] = ModelledStage(held, stage, run.spin)
    return engine


def _step(engine: Engine, planner: Planner, number: int, waits: RankWaits) -> PolicyStep:
    for stage in engine.working.values():
        stage.seconds = waits[engine.mesh.place.ulysses % len(waits)] if waits else {}
    barrier()
    began = perf_counter()
    planned = planner.take(number)
    engine.use(planned.plan)
    loss = engine.gradients(planned.batch).loss
    return PolicyStep(perf_counter() - began, loss, planner.times)


def calibrated_ops(
    connection: Connection, run: PolicyRun, steps: Sequence[ArrangedStep]
) -> list[OpSeconds]:
    """Seconds of the ops of this rank's device in some steps, after one that is not counted."""
    layout = run.layout()
    planned = [run.planned(layout, step) for step in steps]
    with closing(_engine(run, planned[0].plan)) as engine:
        engine.gradients(planned[0].batch)
        return [_spans(engine, each) for each in planned]


def _spans(engine: Engine, planned: PlannedBatch) -> OpSeconds:
    engine.use(planned.plan)
    barrier()
    engine.gradients(planned.batch)
    spans = engine.executor.spans
    ops = [call.op for call in spans.calls]
    return {op: (end - start) / 1e9 for op, start, end in zip(ops, spans.start, spans.end)}
