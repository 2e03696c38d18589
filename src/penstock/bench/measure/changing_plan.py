"""Training steps under a plan that changes, on a machine that is made slow where it is told to.

The model is small and real: its losses show that a change of the plan changes nothing else. Its ops
also wait, so that more ranks than cores have the times of ranks with a core each, and transfers are
late in the steps that say so.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch

from penstock.bench.measure.delayed_transport import Delayed
from penstock.bench.measure.emulated_shard import wait
from penstock.bench.measure.real import HOST
from penstock.data.batch import Microbatch
from penstock.plan.grouping import Grouping
from penstock.run.comm.mesh import make_mesh
from penstock.run.observe.step_times import MeasuredTimes
from penstock.run.policies.adaptive_group import AdaptiveGroup
from penstock.run.policies.changing import ChangingPlan
from penstock.run.policies.improving_order import ImprovingOrder
from penstock.run.policies.memory_room import room_of
from penstock.run.policies.policy import Fixed, PlanChange, PlanPolicy, Proposal
from penstock.run.process.rendezvous import Connection
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import transport_for
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin

TRAINING_RATE = 0.01
GAIN = Fraction(1, 50)
"""Share of a step that a better order must save."""
SHORT_EFFORT = 0.5
"""Seconds of the solver's own clock."""
KindWaits = Mapping[str, float]
"""Seconds that ops of a kind take longer."""


class ChangedStep(NamedTuple):
    """One step of such a run, as a rank has seen it."""

    plan: str
    """The plan that was in force."""
    loss: float
    seconds: float
    change: PlanChange | None
    """What came into force behind it."""


class WaitingStage:
    """A stage whose ops take longer."""

    def __init__(self, stage: Any, waits: KindWaits) -> None:
        self._stage, self._waits = stage, waits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)

    def forward(self, *given: Any) -> Any:
        return self._late("F", self._stage.forward, given)

    def backward(self, *given: Any) -> Any:
        return self._late("B", self._stage.backward, given)

    def input_gradient(self, *given: Any) -> Any:
        return self._late("I", self._stage.input_gradient, given)

    def weight_gradient(self, *given: Any) -> Any:
        return self._late("W", self._stage.weight_gradient, given)

    def _late(self, kind: str, work: Callable[..., Any], given: Sequence[Any]) -> Any:
        wait(self._waits.get(kind, 0.0), 0.0)
        return work(*given)


class Patient(ImprovingOrder):
    """KindWaits for the solver whenever it has asked it: the run is short."""

    def propose(self, plan: StepPlan, times: MeasuredTimes) -> Proposal | None:
        proposal = super().propose(plan, times)
        self.wait()
        return proposal


class SlowMachine(NamedTuple):
    """What is made slower."""

    waits: Sequence[KindWaits]
    """Of each stage."""
    delays: Sequence[float]
    """Seconds that transfers take longer in each step; there are as many steps."""


def adaptive_steps(
    connection: Connection,
    candidates: Mapping[Grouping, StepPlan],
    slow: SlowMachine,
    every: int,
    gain: Fraction,
) -> list[ChangedStep]:
    """Steps begun with the first candidate; the network decides which one is next."""
    first = next(iter(candidates.values()))
    return _run(first, slow, every, lambda engine: AdaptiveGroup(candidates, gain))


def improving_steps(
    connection: Connection, plan: StepPlan, slow: SlowMachine, every: int, folder: Path
) -> list[ChangedStep]:
    """Steps whose order a solver improves; orders are kept in the folder."""

    def policy(engine: Engine) -> PlanPolicy:
        return Patient(room_of(engine, 0), folder, GAIN, SHORT_EFFORT)

    return _run(plan, slow, every, policy)


def fixed_steps(connection: Connection, plan: StepPlan, slow: SlowMachine) -> list[ChangedStep]:
    """Steps that all have one plan."""
    return _run(plan, slow, 0, lambda engine: Fixed())


def _run(
    plan: StepPlan, slow: SlowMachine, every: int, policy: Callable[[Engine], PlanPolicy]
) -> list[ChangedStep]:
    mesh = make_mesh(1, plan.layout.devices)
    transport = Delayed(transport_for(mesh, HOST))
    with closing(Engine(plan, mesh, transport, adam=AdamW(), device=HOST)) as engine:
        begin(engine, 1)
        for stage, held in engine.working.items():
            engine.working[stage] = WaitingStage(held, slow.waits[stage])
        with closing(ChangingPlan(engine, policy(engine), every)) as plans:
            return [_step(plans, transport, *each) for each in enumerate(slow.delays)]


def _step(plans: ChangingPlan, transport: Delayed, number: int, delay: float) -> ChangedStep:
    engine, transport.seconds = plans.engine, delay
    name, batch = engine.plan.schedule.name, batch_for(engine.plan, number)
    began = perf_counter()
    loss = engine.step(batch, TRAINING_RATE).loss
    seconds = perf_counter() - began
    return ChangedStep(name, loss, seconds, plans.after_step(number + 1))


def batch_for(plan: StepPlan, seed: int) -> list[Microbatch]:
    """The batch of a step: the same sequences, however a plan cuts them into microbatches."""
    numbers = torch.Generator().manual_seed(seed)
    size = (len(plan.lengths), plan.rows, plan.longest + 1)
    words = torch.randint(plan.layout.model.vocabulary, size, generator=numbers)
    return [Microbatch(each[:, :-1], each[:, 1:], ((0,),) * plan.rows) for each in words]
