"""What the ranks of the tests' crew hold at the peak of a step."""

from penstock.core.ops import Op
from penstock.run.observe.inspected_step import there_already
from penstock.run.observe.memory_meter import Sample, record_memory
from penstock.run.process.rendezvous import Connection
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine
from run.jobs import batch_of, clear_at_once, engine_of


def samples_of(engine: Engine) -> dict[Op, Sample]:
    """Memory around each op of a step on this rank."""
    batch = batch_of(engine.plan)
    with record_memory(*there_already(engine)) as recorder:
        engine.executor.observer = recorder
        engine.gradients(batch)
    return recorder.samples


def peak_of(engine: Engine) -> int:
    """The most that a step adds on this rank, in bytes."""
    return max(sample.peak for sample in samples_of(engine).values())


def peak_without_waits(connection: Connection, plan: StepPlan) -> int:
    """The same on each rank, however late the receivers are."""
    with engine_of(plan) as engine:
        clear_at_once(engine)
        return peak_of(engine)


def held_without_waits(connection: Connection, plan: StepPlan) -> int:
    """The same, and weights and gradients."""
    with engine_of(plan) as engine:
        clear_at_once(engine)
        flat = {id(f): f for w in engine.weights.values() for f in (w.main, w.value, w.grad)}
        return peak_of(engine) + sum(each.nbytes for each in flat.values())
