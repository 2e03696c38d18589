"""What is left when a run ends: the exported weights and the report."""

from penstock.run.comm.collective import meet
from penstock.train.loop.export import export_weights
from penstock.train.loop.trainer import Trainer
from penstock.train.report.report import EndedRun, report


def finish_run(trainer: Trainer, finished: bool) -> None:
    """Export and report after the last step; after a signal to stop, only say where it stands."""
    if not finished:
        trainer.voice.say(
            f"stopped after step {trainer.done}; the same command continues from there"
        )
        return
    if trainer.settings.checkpoint.export:
        export_weights(trainer)
    if trainer.settings.log.report:
        report(_ended(trainer))


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
