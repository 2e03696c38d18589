"""One rank of a training run, from its first word to its exit code."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import torch

from penstock.data import Data, open_data
from penstock.run.comm.collective import meet
from penstock.run.comm.handshake import agree
from penstock.run.policies.changing import ChangingPlan
from penstock.run.policies.grouped_step import GroupedSteps
from penstock.run.policies.memory_room import room_of
from penstock.run.policies.policy import PlanChange
from penstock.run.process.exit_codes import GOOD, SAVED
from penstock.run.process.machine import Machine
from penstock.run.process.rendezvous import Connection
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import build_engine, torch_device
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.watchdog.alarm import Patience
from penstock.run.watchdog.position import Tracker
from penstock.run.watchdog.watchdog import Watch
from penstock.run.watchdog.watched import Admit, watched_connection
from penstock.train.checkpoint import Checkpoints
from penstock.train.config.save import shared_settings
from penstock.train.config.settings import Settings
from penstock.train.loop.auto_policy import policy_by_ranks
from penstock.train.loop.auto_start import planned_by_ranks
from penstock.train.loop.batches import Batches, PackedBatches
from penstock.train.loop.before_start import refuse_share
from penstock.train.loop.finish import Tell, finish_run, leave
from penstock.train.loop.grouped_batches import GroupedBatches
from penstock.train.loop.grouped_setup import group_planner, largest_microbatch
from penstock.train.loop.out_of_memory import lack_of_memory_in_words
from penstock.train.loop.plan_choice import first_plan, policy_of, refuse_policy
from penstock.train.loop.ragged_setup import given_rule
from penstock.train.loop.resume import ready_trainer
from penstock.train.loop.run_lock import claim_run
from penstock.train.loop.setup import RunSetup, layout_of, order_for, ragged_of
from penstock.train.loop.sliced_batches import SlicedBatches
from penstock.train.loop.stop_signals import Stopping
from penstock.train.loop.trainer import Trainer
from penstock.train.loop.warnings import tight_memory
from penstock.train.records.speaker import Silent, open_voice

BACK_END = {"cpu": "gloo", "cuda": "", "auto": ""}
"""What torch.distributed is told; nothing lets the devices of the machine decide."""


def run_rank(settings: Settings, tell: Tell, machine: Machine | None = None) -> int:
    """Train as one rank of the run that the environment describes; returns the exit code. A machine
    refuses what it has no room for, where no launcher of ours has asked it."""
    torch.set_num_threads(settings.run.threads)
    admit = partial(refuse_share, settings, machine) if machine else None
    with ExitStack() as stack:
        watch = stack.enter_context(_watched(settings, admit))
        if watch.connection.rank == 0:
            stack.enter_context(claim_run(settings))
        plan = planned_by_ranks(settings, watch.connection, watch.tracker)
        plan = policy_by_ranks(plan, watch.connection, watch.tracker)
        trainer = _trainer(plan.settings, watch.connection, watch.tracker, plan.notes)
        stack.enter_context(_closed(trainer))
        stack.enter_context(trainer.stopping)  # before this there is nothing to save
        with lack_of_memory_in_words(trainer.engine.device):
            finished = trainer.run()
        finish_run(trainer, finished, tell)
        leave(trainer)
        return GOOD if finished else SAVED


def _watched(settings: Settings, admit: Admit | None) -> AbstractContextManager[Watch]:
    given = settings.watch
    patience = Patience(given.patience, given.stuck, given.frozen)
    back_end = BACK_END[settings.run.device]
    return watched_connection(back_end, Tracker(), patience, beat=given.heartbeat, admit=admit)


@contextmanager
def _closed(trainer: Trainer) -> Iterator[None]:
    """Records and transport are closed also after an error; then that error is what is said, with
    the place where it happened."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            trainer.voice.close()
        with suppress(Exception):
            trainer.plans.close()
        with suppress(Exception):
            trainer.batches.close()
        raise
    trainer.plans.close()
    trainer.batches.close()
    trainer.engine.close()


def plan_of(settings: Settings, asked: RunSetup) -> StepPlan:
    """The plan that a run begins with."""
    layout = Layout.of(
        asked.model,
        asked.schedule,
        largest_microbatch(settings),
        layers=asked.layers,
        dtype=getattr(torch, settings.run.dtype),
        cell=asked.mesh.cell,
    )
    return StepPlan(layout, asked.schedule, asked.lengths, settings.batch.rows)


def _trainer(
    settings: Settings, connection: Connection, tracker: Tracker, said: Sequence[str]
) -> Trainer:
    """A trainer that is ready for its first step, after it has said so much."""
    tracker.at = "plans the run"
    asked = layout_of(settings, connection.world)
    refuse_policy(settings, asked)
    plan = plan_of(settings, asked)
    facts = _facts(settings, plan)
    with tracker.gathers("state their configuration"):
        agree(connection, facts)
    tracker.at = "builds its stages"
    device = torch_device(settings.run.device, connection.place)
    mesh = settings.mesh
    engine = build_engine(
        plan,
        mesh.replicas,
        _adam(settings, asked),
        device,
        mesh.order,
        shard=mesh.shard,
        shard_ranks=mesh.shard_ranks,
    )
    engine.tell(tracker)
    data = _open_data(settings, connection, engine)
    with tracker.gathers("state their data"):
        agree(connection, _facts_of(data), topic="data")
    with tracker.gathers_files("prepare the folder of checkpoints"):
        checkpoints = Checkpoints(
            Path(settings.run.directory) / "checkpoints",
            keep=settings.checkpoint.keep,
        )
    changing = settings.plan.policy != "fixed"
    plans = ChangingPlan(
        engine, policy_of(settings, engine, asked), settings.plan.every if changing else 0
    )
    trainer = Trainer(
        settings,
        engine,
        data.train,
        data.held_out,
        checkpoints,
        tracker,
        Silent(),
        Stopping(),
        plans,
        _batches(settings, engine),
    )
    notes = ready_trainer(trainer, connection.place.local_world)
    if device.type == "cuda" and settings.data.policy == "pack":  # others plan for what is free
        notes += tight_memory(room_of(engine, 0), plan)
    tracker.at = "plans its batches"
    notes += trainer.batches.begin(trainer.train)
    tracker.at = "opens its records"
    trainer.voice = open_voice(settings, connection.rank, trainer.done)
    for note in (*said, *notes, *data.notes):
        trainer.voice.say(note)
    if changing:
        trainer.tell_plan(PlanChange(trainer.done, plan.schedule.name, first_plan(settings.plan)))
    return trainer


def _batches(settings: Settings, engine: Engine) -> Batches:
    """Who makes the batches of a run, as its data policy says."""
    if settings.data.policy == "pack":
        return PackedBatches(engine)
    samples = settings.mesh.replicas * settings.batch.microbatches
    if settings.data.policy == "flex":
        order = partial(order_for, settings, engine.layout.model, engine.layout.devices)
        planner = group_planner(settings, engine.layout.model_of(0))
        return GroupedBatches(engine, GroupedSteps(engine.layout, order), planner, samples)
    base = ragged_of(settings, engine.layout.model, engine.layout.devices)
    return SlicedBatches(engine, base, given_rule(settings), samples, settings.plan.memory)


def _facts(settings: Settings, plan: StepPlan) -> dict[str, str]:
    """What must be the same on every rank, or they would send what others do not expect."""
    return {
        "config": shared_settings(settings),
        "model": str(plan.layout.model),  # the file that it came from may differ
        "program": plan.schedule.digest,
        "slices": str(plan.lengths),
        "layers": str(plan.layout.layers),
        "boundary": f"{plan.rows} x tokens x {plan.layout.model.hidden} of {plan.layout.dtype}",
        "torch": torch.__version__,
    }


def _facts_of(data: Data) -> dict[str, str]:
    """Ranks that read different files would train on each other's leftovers, and quietly."""
    held = data.held_out.fingerprint if data.held_out else "none"
    return {"data": data.train.fingerprint, "held-out data": held}


def _adam(settings: Settings, asked: RunSetup) -> AdamW:
    given, stages = settings.optimizer, asked.host_stages
    numbers = (given.betas, given.epsilon, given.weight_decay, given.clip)
    return AdamW(*numbers, given.validation, stages)


def _open_data(settings: Settings, connection: Connection, engine: Engine) -> Data:
    """The data; the first rank of a machine reads text before the others find it tokenised."""
    tracker, first = engine.tracker, connection.place.local_rank == 0
    cache = Path(settings.run.directory) / "data"
    sizes = (settings.batch.length, engine.layout.model.vocabulary, settings.run.seed)

    def progress(done: int, size: int) -> None:
        tracker.handles_files(f"tokenises the text, {done:,} of {size:,} bytes")

    for turn, what in ((True, "tokenise the text"), (False, "open the data")):
        if turn == first:
            tracker.handles_files("opens the data")
            data = open_data(settings.data, *sizes, cache, progress)
        with tracker.gathers(what):
            meet(engine.mesh.world)
    return data
