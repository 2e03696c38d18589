"""Who speaks for a run: rank 0 to its files and the console, the others to nobody."""

import sys
from typing import Protocol

from penstock.train.config.settings import Settings
from penstock.train.records.console import Display, open_display
from penstock.train.records.metrics import Metrics, PlanRecord, Timing
from penstock.train.records.sinks import Sinks, open_sinks


class Voice(Protocol):
    """Tells of a run."""

    def step(self, metrics: Metrics, timing: Timing) -> None: ...

    def plan(self, record: PlanRecord) -> None:
        """Record a plan, and show it from here on."""
        ...

    def say(self, text: str) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Silent:
    """The voice of all ranks but the first."""

    def step(self, metrics: Metrics, timing: Timing) -> None:
        return None

    def plan(self, record: PlanRecord) -> None:
        return None

    def say(self, text: str) -> None:
        return None

    def sync(self) -> None:
        return None

    def close(self) -> None:
        return None


class Speaking:
    """The voice of rank 0: records, and a progress that people look at."""

    def __init__(self, settings: Settings, done: int) -> None:
        self._closed = False
        self._sinks: Sinks = open_sinks(settings, done)
        self._display: Display = open_display(
            settings.run.steps, done, sys.stderr, settings.log.every
        )

    def step(self, metrics: Metrics, timing: Timing) -> None:
        self._sinks.metrics(metrics)
        self._sinks.timing(timing)
        self._display.step(metrics.step, metrics.loss, timing.tokens_per_second)
        if metrics.evaluation is not None:
            self._display.say(f"step {metrics.step}: held-out loss {metrics.evaluation:.4f}")

    def plan(self, record: PlanRecord) -> None:
        self._sinks.plan(record)
        self._display.plan = f"{record.plan} since step {record.step + 1}"

    def say(self, text: str) -> None:
        self._display.say(text)

    def sync(self) -> None:
        self._sinks.sync()

    def close(self) -> None:
        """The end of the records; closing again changes nothing."""
        if not self._closed:
            self._closed = True
            self._display.close()
            self._sinks.close()


def open_voice(settings: Settings, rank: int, done: int) -> Voice:
    """The voice of a rank of a run that goes on after `done` steps."""
    return Speaking(settings, done) if rank == 0 else Silent()
