"""The training loop of one rank.

All ranks do the same steps in the same order; what differs is which stages they hold and whether
they speak. Rank 0 writes the records and has the console, wherever the loss is computed: the sums
that a step ends with are known to all.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.data import GlobalBatches, Microbatch, SampleStream
from penstock.errors import RunError
from penstock.run.observe.utilisation import (
    document_lengths,
    gpu_count,
    idle_share,
    model_flops,
    peak_flops,
)
from penstock.run.policies.changing import ChangingPlan
from penstock.run.policies.policy import PlanChange
from penstock.run.step.copies import refuse_unequal_copies
from penstock.run.step.engine import Engine
from penstock.run.step.outcome import Outcome
from penstock.run.step.state import settle, to_load, to_save
from penstock.run.watchdog.first_cause import is_consequence
from penstock.run.watchdog.position import Tracker
from penstock.train.checkpoint import Checkpoints, Found
from penstock.train.config.settings import Settings
from penstock.train.loop.batches import Batches
from penstock.train.loop.frozen_base import frozen_state
from penstock.train.loop.learning_rate import PLANNED, kept_steps, rate_at
from penstock.train.loop.stop_signals import Stopping
from penstock.train.loop.unrecorded import Glance, Unrecorded
from penstock.train.loop.warnings import evaluation_batches
from penstock.train.records.metrics import Metrics, PlanRecord, Timing
from penstock.train.records.speaker import Voice


@dataclass
class Trainer:
    """Everything a rank needs to train, put together by train/loop/rank.py."""

    settings: Settings
    engine: Engine
    train: SampleStream
    held_out: SampleStream | None
    checkpoints: Checkpoints
    tracker: Tracker
    voice: Voice
    stopping: Stopping
    plans: ChangingPlan
    """Who chooses the plan of the next step."""
    batches: Batches
    """Who makes microbatches of the samples of a step."""
    done: int = 0
    """Steps done."""
    samples: int = 0
    """Samples consumed."""
    tokens: int = 0
    saved: int = -1
    """The step that was saved last."""
    told_to_stop: bool = False
    """Whether some rank was, as far as all of them know."""
    unrecorded: deque[Unrecorded] = field(default_factory=deque)
    """Steps done that are not in the records, because they are not settled."""
    planned: int = field(init=False)
    """Steps over which the learning rate is planned."""
    global_batches: GlobalBatches = field(init=False)
    """Which samples each step takes."""

    def __post_init__(self) -> None:
        self.planned = self.settings.planned_steps
        self.global_batches = GlobalBatches(
            self.train, self.batch_samples, self.settings.batch.tokens
        )
        self.train = self.global_batches.limited

    def run(self) -> bool:
        """Train to the last step; returns whether that was reached, and not a signal to stop."""
        last = self.settings.run.steps
        while self.done < last:
            every = self.settings.checkpoint.every
            with self._saved_first():
                self._step()
                due = self.told_to_stop or self.done == last
                due = due or bool(every and self.done % every == 0)
                if due:
                    self._record(self.engine.finish())
            if due:
                self.save()
            if self.told_to_stop and self.done < last:
                break
        with self.tracker.gathers_files("write the checkpoint"):
            self.checkpoints.wait()
        return self.done >= last

    @contextmanager
    def _saved_first(self) -> Iterator[None]:
        """Let an error wait for the checkpoint in flight: the ranks end as soon as it is said, and
        the threads that save with them. Where a rank is gone the checkpoint is lost anyway."""
        try:
            yield
        except Exception as error:
            if not is_consequence(error):
                with suppress(RunError):  # what went wrong first is what is said
                    self.checkpoints.wait()
            raise

    def _step(self) -> None:
        """One step, and the records of steps that are settled now."""
        settings, began = self.settings, time.perf_counter()
        self.tracker.step, self.tracker.at = self.done + 1, "reads its batch"
        rate = rate_at(settings.optimizer, self.done, self.planned)
        taken = self.global_batches.at(self.samples)
        batch = self.batch_of(self.train, self.samples)
        outcomes = self.engine.advance(batch, rate)
        self.done += 1
        self.samples = taken.stop
        self.tokens += taken.tokens
        step = Unrecorded.of(self.done, rate, self.tokens, self._glance(batch), self.engine.mesh)
        step.plan, step.making = self.engine.plan.schedule.name, self.batches.times
        step.batch_tokens = taken.tokens
        self.unrecorded.append(step)
        for settled in [*self.unrecorded][: len(outcomes)]:
            self._heard(settled)
        step.seconds = time.perf_counter() - began
        self._change_plan()
        self._compare_copies()
        evaluation = self._evaluate()
        if evaluation is not None:
            outcomes += self.engine.finish()
        self._record(outcomes, evaluation)

    def _record(self, outcomes: Sequence[Outcome], evaluation: float | None = None) -> None:
        """Write down steps that are settled; an evaluation belongs to the last step done."""
        for outcome in outcomes:
            step = self.unrecorded.popleft()
            glances, found = self._heard(step), evaluation if step.step == self.done else None
            metrics = Metrics(step.step, outcome.loss, outcome.norm, step.rate, step.tokens, found)
            self.tracker.at = "writes its records"
            self.voice.step(metrics, self._timing(step, glances))
            self.told_to_stop |= any(glance.told_to_stop for glance in glances)

    def _heard(self, step: Unrecorded) -> list[Glance]:
        with self.tracker.gathers("end the step"):
            return step.glances()

    def _change_plan(self) -> None:
        """Take another plan from the next step on, where there is a next step and a better plan."""
        change = self.plans.after_step(self.done) if self.done < self.settings.run.steps else None
        for remark in self.plans.remarks():
            self.voice.say(remark)
        if change is not None:
            self.tell_plan(change)

    def tell_plan(self, change: PlanChange) -> None:
        """Say and record which plan is in force from here on, and why."""
        self.voice.say(change.words)
        self.voice.plan(PlanRecord(*change))

    @property
    def batch_samples(self) -> int:
        """Samples of a global batch."""
        batch = self.settings.batch
        return self.settings.mesh.replicas * batch.microbatches * batch.rows

    def batch_of(self, samples: SampleStream, start: int) -> tuple[Microbatch, ...]:
        """This replica's part of a batch, whose plan is then in force; all ranks ask together."""
        return self.batches.take(samples, start)

    def _compare_copies(self) -> None:
        """Ask ranks that hold the same weights to prove it, in the steps that ask for it."""
        every = self.settings.mesh.compare_every
        if every and self.done % every == 0:
            self.tracker.at = "compares its weights"
            with self.tracker.gathers("compare their weights"):
                refuse_unequal_copies(self.engine)

    def _evaluate(self) -> float | None:
        """The loss on held-out data, in the steps that ask for it."""
        every, held, size = self.settings.evaluation.every, self.held_out, self.batch_samples
        if held is None or not every or self.done % every:
            return None
        count = evaluation_batches(self.settings, held)
        self.tracker.at = "evaluates"
        return self.engine.evaluate(self.batch_of(held, start * size) for start in range(count))

    def _glance(self, batch: Sequence[Microbatch]) -> Glance:
        """What this rank says of the step."""
        self.tracker.at = "ends its step"
        times = (self.engine.busy_seconds(), self.engine.lane_seconds())
        cell = self.engine.layout.cell.ranks
        flops = model_flops(self.engine.layout.model, document_lengths(batch)) / cell
        return Glance(*times, self.engine.peak_bytes(), self.stopping.asked, flops)

    def _timing(self, step: Unrecorded, glances: Sequence[Glance]) -> Timing:
        tokens, seconds = step.batch_tokens, step.seconds
        busy, lanes = [glance.busy for glance in glances], [glance.lane for glance in glances]
        return Timing(
            step=step.step,
            seconds=seconds,
            tokens_per_second=tokens / seconds,
            utilisation=self._utilisation(seconds, glances),
            memory=tuple(int(glance.memory) for glance in glances),
            plan=step.plan if self.plans.every else None,
            planning=step.making.making if step.making else None,
            plan_wait=step.making.waiting if step.making else None,
            bubble=idle_share(busy, lanes, self.engine.mesh.grid.groups("device")),
            time=time.time(),
        )

    def _utilisation(self, seconds: float, glances: Sequence[Glance]) -> float | None:
        peak = peak_flops(self.engine.device)
        if peak is None:
            return None
        flops = sum(glance.flops for glance in glances) / self.engine.mesh.devices
        return flops / (seconds * peak * gpu_count())

    def save(self) -> None:
        """Begin to store the run as it is now."""
        if self.saved == self.done:
            return
        self._record(self.engine.finish())
        self.tracker.at = "saves"
        self.voice.sync()
        with self.tracker.gathers_files("write the checkpoint before this one"):
            self.checkpoints.save(self.done, to_save(self.engine), self.state())
        self.saved = self.done

    def close(self) -> None:
        """End the records."""
        self.tracker.at = "closes its records"
        self.voice.close()

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds beside tensors: where the run is, and who wrote it."""
        shape = self.engine.plan.schedule.shape
        return {
            "data": self.train.state(self.samples),
            "tokens": self.tokens,
            PLANNED: self.planned,
            **self.batches.state(),
            **frozen_state(self.settings),
            "writer": {
                "schedule": self.engine.plan.schedule.name,
                "devices": shape.devices,
                "stages": shape.stages,
                "replicas": self.engine.mesh.replicas,
                "cell": self.engine.layout.cell.ranks,
            },
        }

    def resume(self, found: Found) -> None:
        """Go on from a checkpoint, whatever layout wrote it."""
        self.samples = self.train.resume(found.state["data"])
        with self.tracker.gathers_files("load the checkpoint"):
            self.checkpoints.load(found, to_load(self.engine))
        settle(self.engine, found.step)
        self.done = self.saved = found.step
        self.planned = kept_steps(self.settings, found.state)
        self.tokens = int(found.state["tokens"])
        self.batches.resume(found.state)
