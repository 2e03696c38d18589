"""The part of `penstock bench run` that changes the plan of a small model while it trains.

Transfers are late in some steps, and one stage takes longer than the others. The steps of a plan
that follows this are shown beside those of a plan that stays; both have the same losses.
"""

from collections.abc import Sequence
from fractions import Fraction
from json import dumps
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from penstock.arch.config import ModelConfig
from penstock.bench.run import BenchSettings, Result, Say
from penstock.core.schedule import Schedule
from penstock.plan.adaptive import schedule_of_grouping
from penstock.plan.grouping import Grouping
from penstock.schedules import build
from penstock.transform import split_backward

if TYPE_CHECKING:
    from penstock.bench.measure.changing_plan import ChangedStep
    from penstock.run.launch.worker_pool import Crew
    from penstock.run.program.step_plan import StepPlan

LENGTH = 16
"""Tokens of a sequence: ops wait, they hardly compute."""


def measure_plans(settings: BenchSettings, say: Say) -> Result:
    """A network that changes, then a stage that is slow."""
    from penstock.run.launch.worker_pool import Crew

    with Crew(settings["ranks"]) as crew:
        adaptive = _adaptive(crew, settings)
        say(dumps({"adaptive": adaptive}))
        improving = _improving(crew, settings)
        say(dumps({"improving": improving}))
    sizes = {key: settings[key] for key in ("schedule", "ranks", "microbatches", "waits")}
    return {**sizes, "adaptive": adaptive, "improving": improving}


def _adaptive(crew: "Crew", settings: BenchSettings) -> Result:
    """The same delays for a plan that follows them and for the one it begins with."""
    from penstock.bench.measure.changing_plan import SlowMachine, adaptive_steps, fixed_steps

    ways = [Grouping(group, 1, settings["microbatches"]) for group in settings["groups"]]
    plans = {
        way: _plan(schedule_of_grouping(lambda m: _built(settings, m), way), settings)
        for way in ways
    }
    length = settings["phase"]
    delays = [delay for delay in settings["delays"] for _ in range(length)]
    slow = SlowMachine([settings["waits"]] * settings["ranks"], delays)
    gain = Fraction(str(settings["gain"]))
    changing = crew.run(adaptive_steps, plans, slow, settings["every"], gain)[0]
    fixed = crew.run(fixed_steps, plans[ways[0]], slow)[0]
    phases = [
        {
            "delay": delay,
            "plan": changing[last].plan,
            "seconds": _last_seconds(changing[: last + 1], settings),
            "fixed_seconds": _last_seconds(fixed[: last + 1], settings),
        }
        for delay, last in zip(settings["delays"], range(length - 1, len(delays), length))
    ]
    return {"phases": phases, **_told(changing, fixed)}


def _improving(crew: "Crew", settings: BenchSettings) -> Result:
    """A last stage that takes longer, and the solver's order for it."""
    from penstock.bench.measure.changing_plan import SlowMachine, fixed_steps, improving_steps

    plan = _plan(split_backward(_built(settings, settings["solved_microbatches"])), settings)
    factors = [1.0] * (settings["ranks"] - 1) + [settings["slow_stage"]]
    waits = [{k: w * factor for k, w in settings["waits"].items()} for factor in factors]
    slow = SlowMachine(waits, [0.0] * 4 * settings["every"])
    with TemporaryDirectory() as folder:
        changing = crew.run(improving_steps, plan, slow, settings["every"], Path(folder))[0]
    fixed = crew.run(fixed_steps, plan, slow)[0]
    seconds = {
        "plan": changing[-1].plan,
        "seconds": _last_seconds(changing, settings),
        "fixed_seconds": _last_seconds(fixed, settings),
    }
    return {**seconds, **_told(changing, fixed)}


def _told(changing: "Sequence[ChangedStep]", fixed: "Sequence[ChangedStep]") -> Result:
    return {
        "changes": [step.change.words for step in changing if step.change],
        "equal_losses": [step.loss for step in changing] == [step.loss for step in fixed],
    }


def _last_seconds(steps: "Sequence[ChangedStep]", settings: BenchSettings) -> float:
    """The median of the last steps, between two looks."""
    return median(step.seconds for step in steps[-settings["every"] :])


def _built(settings: BenchSettings, microbatches: int) -> Schedule:
    return build(settings["schedule"], devices=settings["ranks"], microbatches=microbatches)


def _plan(schedule: Schedule, settings: BenchSettings) -> "StepPlan":
    from penstock.run.program.layout import Layout
    from penstock.run.program.step_plan import StepPlan

    model = ModelConfig(**settings["model"], element_bytes=4)
    layout = Layout.of(model, schedule, LENGTH)
    return StepPlan(layout, schedule, ((LENGTH,),) * schedule.shape.microbatches)
