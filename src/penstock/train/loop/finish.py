"""What is left when a run ends: the exported weights and the report."""

from collections.abc import Callable

from penstock.run.comm.collective import meet
from penstock.train.loop.export import export_weights
from penstock.train.loop.trainer import Trainer
from penstock.train.report.outcome import RunOutcome
from penstock.train.report.report import EndedRun, plain_outcome, report

Tell = Callable[[RunOutcome], None]
"""Says on the console of the first rank how a run ended."""


def finish_run(trainer: Trainer, finished: bool, tell: Tell) -> None:
    """Export and report after the last step; after a signal to stop, only say where it stands."""
    outcome = _outcome(trainer, finished)
    if outcome is not None:
        tell(outcome)


def _outcome(trainer: Trainer, finished: bool) -> RunOutcome | None:
    if not finished:
        trainer.voice.say(
            f"stopped after step {trainer.done}; the same command continues from there"
        )
        return plain_outcome(_ended(trainer), finished=False)
    if trainer.settings.checkpoint.export:
        export_weights(trainer)
    ended = _ended(trainer)
    reported = trainer.settings.log.report and _is_counted(ended)
    return report(ended) if reported else plain_outcome(ended, finished=True)


def _is_counted(run: EndedRun) -> bool:
    """Whether the work of each rank is known: not of one that shares the matrices of a model which
    leaves out tokens (cost/kept_workload.py)."""
    layout = run.engine.layout
    return layout.model.subsampling is None or layout.cell.ranks == 1


def _ended(trainer: Trainer) -> EndedRun:
    return EndedRun(
        trainer.settings,
        trainer.engine,
        trainer.tracker,
        trainer.batch_of(trainer.train, trainer.samples),
        trainer.tokens,
        trainer.checkpoints.folder / f"step-{trainer.done:08}",
        trainer.close,
    )


def leave(trainer: Trainer) -> None:
    """End the records while the others still look: where that hangs, they say so."""
    trainer.close()
    with trainer.tracker.gathers("close their records"):
        meet(trainer.engine.mesh.world)
