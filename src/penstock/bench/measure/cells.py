"""Whole steps of our schedules over cells of ranks, without the optimizer.

It is the engine that trains, with the sum over ranks that hold the same weights. PyTorch's side,
with the same weights and tokens in the same processes, is in `torch_cells`.
"""

from contextlib import closing

from penstock.arch.cell_shape import CellShape
from penstock.bench.measure.real import HOST, Timed, TrainingWork, measure_steps
from penstock.core.schedule import Schedule
from penstock.run.process.rendezvous import Connection
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import build_engine
from penstock.run.step.optimizer import NoUpdate
from penstock.run.step.state import begin


def run_our_cells(
    connection: Connection,
    work: TrainingWork,
    schedule: Schedule,
    lengths: tuple[int, ...],
    cell: CellShape,
    steps: int,
) -> Timed:
    """Steps of one of our schedules, each device a cell; microbatches are cut to these lengths."""
    layout = Layout.of(work.model, schedule, work.length, cell=cell)
    plan, batch = StepPlan(layout, schedule, (lengths,) * work.microbatches), work.batch()
    with closing(build_engine(plan, 1, NoUpdate(), HOST)) as engine:
        begin(engine, seed=0)
        seconds, outcome = measure_steps(lambda: engine.gradients(batch), steps)
    return Timed(seconds, outcome.loss if connection.rank == 0 else 0.0, [])
