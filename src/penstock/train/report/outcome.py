"""What a run leaves behind: its figures, for the report, and the fields that scripts read.

Nothing here runs or reads anything, so that a report can be made from any run's figures.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from penstock.plan.memory_by_class import ClassBytes
from penstock.sim.timeline import Timeline

SHOWN_MEAN = 10
"""Steps over which a loss is a mean: single steps jump about."""


class ProfiledStep(NamedTuple):
    """A whole step with its update, as a profile predicts it."""

    profile: str
    seconds: float


class Compared(NamedTuple):
    """One schedule: what was predicted, and what was measured."""

    name: str
    predicted: Timeline
    """As if every process had a core or a GPU of its own, from the time that its ops took; with the
    bytes that the step adds on each device."""
    shared: Fraction | None
    """Seconds predicted with the cores that there are, where they are fewer than processes."""
    measured: Timeline
    communication: Sequence[int] = ()
    """Bytes of the communicators of each device; nothing or zeros where there are none."""
    host: Sequence[tuple[int, int]] = ()
    """Bytes that wait on the host at most, predicted and measured, of each device."""
    kept: Sequence[tuple[int, int]] = ()
    """Bytes of optimizer state on the host, predicted and measured, of each device."""

    classes: Sequence[tuple[ClassBytes, ClassBytes]] = ()
    """Bytes by what they are for, predicted and measured, of each device."""

    @property
    def peak(self) -> int:
        """The most that a step added on any device."""
        return max(int(peak) for peak in self.measured.peak)


class Ran(NamedTuple):
    """What a run leaves behind."""

    folder: Path
    losses: Sequence[float]
    tokens: int
    seconds: Sequence[float]
    """Of each step that was timed."""
    processes: int
    cores: int
    slices: int
    replans: bool
    """Whether the learning rate of further steps depends on whether it is planned anew."""
    checkpoint: Path
    export: str
    """Where the exported weights are; empty where there are none."""
    ranks_of_device: int = 1
    """Processes that work together as one device."""
    plans: Sequence[Mapping[str, Any]] = ()
    """Records of the plans that came into force, where they may change."""

    @property
    def mean_losses(self) -> tuple[float, float] | None:
        """Of the first steps and of the last ones; None where there is no step."""
        if not self.losses:
            return None
        return mean(self.losses[: self.steps_of_mean]), mean(self.losses[-self.steps_of_mean :])

    @property
    def steps_of_mean(self) -> int:
        """Steps of such a mean: first and last ones have none in common."""
        return min(SHOWN_MEAN, max(len(self.losses) // 2, 1))

    @property
    def tokens_per_second(self) -> float | None:
        """Of the steps that were timed; None where there is none."""
        if not self.losses or not self.seconds:
            return None
        return self.tokens / len(self.losses) * len(self.seconds) / sum(self.seconds)


class RunOutcome(NamedTuple):
    """All that there is to say when a run ends."""

    ran: Ran
    finished: bool
    """Whether the last step was reached, and not a signal to stop."""
    compared: Sequence[Compared] = ()
    """The run's schedule and those it is compared with; nothing where no report was wanted."""
    left_out: Sequence[str] = ()
    """Why schedules are not compared, or no time follows from a profile."""
    profiled: ProfiledStep | None = None
    """What a profile says that a step takes, where there is one."""


def outcome_record(outcome: RunOutcome) -> dict[str, Any]:
    """The fields that scripts depend on; seconds and bytes."""
    ran = outcome.ran
    first, last = ran.mean_losses or (None, None)
    return {
        "finished": outcome.finished,
        "directory": str(ran.folder),
        "steps": len(ran.losses),
        "tokens": ran.tokens,
        "loss": ran.losses[-1] if ran.losses else None,
        "first_mean_loss": first,
        "last_mean_loss": last,
        "tokens_per_second": ran.tokens_per_second,
        "processes": ran.processes,
        "cores": ran.cores,
        "checkpoint": str(ran.checkpoint),
        "export": ran.export or None,
        "plans": list(ran.plans),
        "schedules": [_compared_record(each) for each in outcome.compared],
        "left_out": list(outcome.left_out),
        "median_seconds": median(ran.seconds) if ran.seconds else None,
        "profile": outcome.profiled.profile if outcome.profiled else None,
        "profile_seconds": outcome.profiled.seconds if outcome.profiled else None,
    }


def _compared_record(each: Compared) -> dict[str, Any]:
    return {
        "name": each.name,
        "predicted_seconds": float(each.predicted.makespan),
        "predicted_bubble": float(each.predicted.bubble_makespan),
        "predicted_seconds_on_cores": None if each.shared is None else float(each.shared),
        "measured_seconds": float(each.measured.makespan),
        "predicted_peak": [int(peak) for peak in each.predicted.peak],
        "measured_peak": [int(peak) for peak in each.measured.peak],
        "predicted_host": [predicted for predicted, _ in each.host],
        "measured_host": [measured for _, measured in each.host],
        "predicted_host_state": [predicted for predicted, _ in each.kept],
        "measured_host_state": [measured for _, measured in each.kept],
        "predicted_classes": [predicted._asdict() for predicted, _ in each.classes],
        "measured_classes": [measured._asdict() for _, measured in each.classes],
    }
