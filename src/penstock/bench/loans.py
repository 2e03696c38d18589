"""The part of `penstock bench run` that measures how equal lent attention makes devices.

Slices of equal length are unequal work under causal attention, and devices in lock-step wait for
the one with the most. The same model is trained without loans and with them: what an op works is
measured, and what loans should change is predicted from the run that has none.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from json import dumps
from statistics import median
from typing import TYPE_CHECKING

from penstock.arch.config import ModelConfig
from penstock.bench.imbalance import imbalance, predicted_loads, rounds_of
from penstock.bench.run import BenchSettings, Result, Say
from penstock.core.schedule import Schedule
from penstock.cost.lending_profile import LendingProfile
from penstock.cost.model import UnitCost
from penstock.cost.profile import NANOSECOND
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.sim import simulate

if TYPE_CHECKING:
    from penstock.bench.measure.op_work import WorkingSteps
    from penstock.run.launch.worker_pool import Crew

ROUNDING = 1e-5
"""Largest difference of two losses in 32 bits, relative: parts of attention are joined in another
order."""


def measure_loans(settings: BenchSettings, say: Say) -> Result:
    """Every schedule at every length; told row by row."""
    from penstock.run.launch.worker_pool import Crew

    refuse_unequal(settings)
    rows: list[Result] = []
    with Crew(settings["ranks"]) as crew:
        for tokens in settings["tokens"]:
            for row in _rows(crew, settings, tokens):
                rows.append({"tokens": tokens, **row})
                say(dumps({"loans": rows[-1]}))
    sizes = {key: settings[key] for key in ("ranks", "microbatches", "slices", "steps", "model")}
    return {**sizes, "rows": rows, "equal_losses": all(row["equal_loss"] for row in rows)}


def refuse_unequal(settings: BenchSettings) -> None:
    """What a slice more costs is read from slices that differ in nothing else, and devices with
    more layers than others have more work whatever is lent."""
    devices, slices = settings["ranks"], settings["slices"]
    layers = settings["model"]["layers"]
    if layers % devices:
        raise ShapeError(
            f"{layers} layers cannot be spread evenly over {devices} devices",
            hint=f"give --ranks a number that divides {layers}",
        )
    for tokens in settings["tokens"]:
        if tokens % slices:
            raise ShapeError(
                f"{tokens} tokens cannot be cut into {slices} equal slices",
                hint=f"give --tokens a multiple of {slices}",
            )


def _rows(crew: "Crew", settings: BenchSettings, tokens: int) -> Iterator[Result]:
    """The first schedule lends nothing; its ops say what the others should take."""
    from penstock.bench.measure.op_work import run_working
    from penstock.bench.measure.real import TrainingWork

    model = ModelConfig(**settings["model"], element_bytes=4)
    work = TrainingWork(model, tokens, settings["microbatches"])
    lengths = (tokens // settings["slices"],) * settings["slices"]
    profile, loss = None, 0.0
    for schedule in schedules_of(settings):
        found = crew.run(run_working, work, schedule, lengths, settings["steps"])
        if profile is None:
            profile, loss = profile_without_loans(schedule, found), _loss(found)
        equal = abs(_loss(found) - loss) <= ROUNDING * abs(loss)
        yield {**figures(schedule, found, profile), "loss": _loss(found), "equal_loss": equal}


def schedules_of(settings: BenchSettings) -> list[Schedule]:
    sizes = {
        "devices": settings["ranks"],
        **{key: settings[key] for key in ("microbatches", "slices")},
    }
    return [build(name, **sizes) for name in settings["schedules"]]


def profile_without_loans(schedule: Schedule, found: "Sequence[WorkingSteps]") -> LendingProfile:
    seconds = [float(load) for load in measured_loads(schedule, found)]
    return LendingProfile.of(schedule, seconds, UnitCost())


def measured_loads(schedule: Schedule, found: "Sequence[WorkingSteps]") -> list[Fraction]:
    """Seconds that each row has worked."""
    work = {op: time for part in found for op, time in part.work.items()}
    return [work[op] * NANOSECOND for op in schedule.table.ops()]


def figures(schedule: Schedule, found: "Sequence[WorkingSteps]", profile: LendingProfile) -> Result:
    """A step takes as long as its slowest rank; imbalances are of the rounds of all devices."""
    rounds = rounds_of(schedule)
    measured = imbalance(rounds, measured_loads(schedule, found))
    predicted = imbalance(rounds, predicted_loads(schedule, profile))
    return {
        "schedule": schedule.name,
        "seconds": median(max(step) for step in zip(*(part.seconds for part in found))),
        "predicted_seconds": float(simulate(schedule, profile).makespan),
        "attention": profile.attention,
        "rounds": len(rounds),
        "longest": float(measured.longest),
        "mean": float(measured.mean),
        "imbalance": float(measured.ratio),
        "predicted": float(predicted.ratio),
        "difference": float(measured.ratio / predicted.ratio) - 1,
    }


def _loss(found: "Sequence[WorkingSteps]") -> float:
    return sum(part.loss for part in found)
