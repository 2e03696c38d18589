"""One rank of a training run, from its first word to its exit code."""

from contextlib import ExitStack
from pathlib import Path

import torch
import torch.distributed

from penstock.data import Data, open_data
from penstock.run.alarm import Patience
from penstock.run.build import build_engine, torch_device
from penstock.run.codes import GOOD, SAVED
from penstock.run.handshake import agree
from penstock.run.optimizer import AdamW
from penstock.run.plan import RunPlan
from penstock.run.position import Tracker
from penstock.run.rendezvous import Connection, connected
from penstock.run.report import reported
from penstock.run.watch import Watch
from penstock.train.beginning import start
from penstock.train.checkpoint import Checkpoints
from penstock.train.claim import claimed
from penstock.train.config import agreed
from penstock.train.ending import finish
from penstock.train.layout import layout_of
from penstock.train.settings import Settings
from penstock.train.stopping import Stopping
from penstock.train.trainer import Trainer
from penstock.train.voice import Silent, open_voice

BACK_END = {"cpu": "gloo", "cuda": "", "auto": ""}
"""What torch.distributed is told; nothing lets the devices of the machine decide."""


def run_rank(settings: Settings) -> int:
    """Train as one rank of the run that the environment describes; returns the exit code."""
    torch.set_num_threads(settings.run.threads)
    with ExitStack() as stack:
        stopping = stack.enter_context(Stopping())
        connection = stack.enter_context(connected(BACK_END[settings.run.device]))
        tracker = Tracker()
        patience = Patience(settings.watch.patience, settings.watch.stuck)
        watch = Watch(connection, tracker, patience, beat=settings.watch.beat)
        stack.enter_context(watch)
        stack.enter_context(reported(watch))
        if connection.rank == 0:
            stack.enter_context(claimed(Path(settings.run.directory)))
        trainer = _trainer(settings, connection, tracker, stopping)
        stack.callback(lambda: trainer.voice.close())
        stack.callback(trainer.engine.executor.transport.close)
        finished = trainer.run()
        finish(trainer, finished)
        return GOOD if finished else SAVED


def plan_of(settings: Settings, processes: int) -> RunPlan:
    """What the settings mean for so many processes."""
    layout = layout_of(settings, processes)
    return RunPlan(
        layout.model,
        layout.schedule,
        layout.lengths,
        layout.layers,
        getattr(torch, settings.run.dtype),
        settings.batch.rows,
    )


def _trainer(
    settings: Settings, connection: Connection, tracker: Tracker, stopping: Stopping
) -> Trainer:
    tracker.at = "agrees with the others"
    plan = plan_of(settings, connection.world)
    agree(connection, _facts(settings, plan))
    tracker.at = "builds its stages"
    device = torch_device(settings.run.device, connection.place)
    engine, _ = build_engine(plan, settings.pipeline.replicas, _adam(settings), device)
    lane = engine.executor.lane
    tracker.follow(lane, lambda other: engine.mesh.ranks_of(engine.mesh.replica)[other])
    engine.executor.observer = tracker
    tracker.at = "opens the data"
    data = _open_data(settings, plan, connection)
    agree(connection, _facts_of(data), topic="data")
    checkpoints = Checkpoints(
        Path(settings.run.directory) / "checkpoints",
        keep=settings.checkpoint.keep,
        replicas=settings.pipeline.replicas,
    )
    trainer = Trainer(
        settings, engine, data.train, data.held_out, checkpoints, tracker, Silent(), stopping
    )
    notes = start(trainer)
    trainer.voice = open_voice(settings, connection.rank, trainer.done)
    for note in (*data.notes, *notes):
        trainer.voice.say(note)
    return trainer


def _facts(settings: Settings, plan: RunPlan) -> dict[str, str]:
    """What must be the same on every rank, or they would send what others do not expect."""
    return {
        "config": agreed(settings),
        "program": plan.schedule.digest,
        "slices": str(plan.lengths),
        "layers": str(plan.layers),
        "boundary": f"{plan.rows} x tokens x {plan.model.hidden} of {plan.dtype}",
        "torch": torch.__version__,
    }


def _facts_of(data: Data) -> dict[str, str]:
    """Ranks that read different files would train on each other's leftovers, and quietly."""
    held = data.held_out.fingerprint if data.held_out else "none"
    return {"data": data.train.fingerprint, "held-out data": held}


def _adam(settings: Settings) -> AdamW:
    given = settings.optimizer
    return AdamW(given.betas, given.epsilon, given.weight_decay, given.clip)


def _open_data(settings: Settings, plan: RunPlan, connection: Connection) -> Data:
    """The data; the first rank of a machine reads text before the others find it tokenised."""
    here = connection.place
    cache = Path(settings.run.directory) / "data"
    sizes = (settings.batch.length, plan.model.vocabulary, settings.run.seed)
    for turn in (True, False):
        if turn == (here.local_rank == 0):
            data = open_data(settings.data, *sizes, cache)
        if not connection.alone:
            torch.distributed.barrier()
    return data
