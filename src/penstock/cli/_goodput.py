"""Options of `plan` for trainings so long that GPUs fail on the way, and for times that vary."""

from dataclasses import dataclass
from typing import Annotated, Any, Self

import typer

from penstock.cli._variation import TAIL
from penstock.errors import ShapeError
from penstock.estimate.price import Estimate, layout_cost
from penstock.estimate.reasons import number_words
from penstock.estimate.step_schedule import step_schedule
from penstock.plan.goodput import Failures, Goodput, best_goodput
from penstock.sim import simulate
from penstock.sim.variation import LARGEST_JITTER, Varied, vary

LONGEST_TIME = 1e12
"""In the unit of its flag: longer than any training, and short enough to be counted in steps."""
MOST_DRAWS = 100_000


@dataclass(frozen=True)
class ScaleFlags:
    """What a training has to stand."""

    mtbf_hours: Annotated[
        float,
        typer.Option(
            metavar="HOURS", help="Mean time between failures of one GPU: say the progress."
        ),
    ] = 0.0
    checkpoint_seconds: Annotated[
        float, typer.Option(metavar="S", help="How long a checkpoint stops training.")
    ] = 60.0
    restart_seconds: Annotated[
        float, typer.Option(metavar="S", help="From a failure to the next step.")
    ] = 600.0
    jitter: Annotated[
        float,
        typer.Option(metavar="PART", help="Draw the times of ops at random: 0.05 is 5 %."),
    ] = 0.0
    draws: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_DRAWS, metavar="N", help="Steps that --jitter draws for each plan."
        ),
    ] = 200

    def refuse_senseless(self) -> None:
        """Before a search, which takes seconds."""
        times = (self.mtbf_hours, self.checkpoint_seconds, self.restart_seconds)
        if not all(0 <= time <= LONGEST_TIME for time in times):
            raise ShapeError(
                f"--mtbf-hours is {self.mtbf_hours:g}, --checkpoint-seconds "
                f"{self.checkpoint_seconds:g}, --restart-seconds {self.restart_seconds:g}",
                hint=f"give times from 0 to {LONGEST_TIME:g}",
            )
        if not 0 <= self.jitter < LARGEST_JITTER:
            hint = f"give a part from 0 to below {LARGEST_JITTER:g}, such as 0.05"
            raise ShapeError(f"--jitter is {self.jitter:g}", hint=hint)
        self._refuse_idle()

    def _refuse_idle(self) -> None:
        """What says nothing without another flag."""
        needed = {"checkpoint_seconds": "mtbf_hours", "restart_seconds": "mtbf_hours"}
        for name, other in (needed | {"draws": "jitter"}).items():
            if getattr(self, name) != getattr(ScaleFlags, name) and not getattr(self, other):
                flag, missing = (f"--{each.replace('_', '-')}" for each in (name, other))
                raise ShapeError(
                    f"{flag} says nothing without {missing}", hint=f"give {missing} too"
                )


@dataclass(frozen=True)
class PlanAtScale:
    """What becomes of one plan; what was not asked for is None."""

    plan: Estimate
    goodput: Goodput | None
    varied: Varied | None

    @classmethod
    def of(cls, plan: Estimate, flags: ScaleFlags) -> Self:
        varied = _varied(plan, flags) if flags.jitter else None
        seconds = plan.seconds * (varied.mean if varied else 1.0)
        return cls(plan, _goodput(plan, seconds, flags) if flags.mtbf_hours else None, varied)

    def record(self) -> dict[str, Any]:
        """Fields in addition to those of the plan."""
        found: dict[str, Any] = {}
        if self.varied is not None:
            limit = self.varied.percentile(TAIL)
            found["jitter"] = {"mean": self.varied.mean, f"p{TAIL}": limit}
            found["jitter"]["draws_per_second"] = self.varied.draws_per_second
        if self.goodput is not None:
            found["goodput"] = self.goodput._asdict()
        return found

    def cells(self) -> dict[str, str]:
        """Columns of the table."""
        found = {}
        if self.varied is not None:
            found["with jitter s"] = f"{self.plan.seconds * self.varied.percentile(TAIL):.3f}"
        if self.goodput is not None:
            found["checkpoint each"] = number_words(self.goodput.steps, "step")
            found["progress"] = f"{self.goodput.progress:.1%}"
            tokens = self.plan.tokens_per_second * self.goodput.progress
            tokens /= self.varied.mean if self.varied else 1.0
            found["tokens/s with failures"] = f"{tokens:,.0f}"
        return found


def _varied(plan: Estimate, flags: ScaleFlags) -> Varied:
    step = step_schedule(plan.layout)
    timeline = simulate(step.schedule, layout_cost(plan.layout, step))
    return vary(timeline, flags.jitter, flags.draws)


def _goodput(plan: Estimate, seconds: float, flags: ScaleFlags) -> Goodput:
    times = flags.checkpoint_seconds, flags.restart_seconds
    failures = Failures(plan.layout.cluster.gpus, flags.mtbf_hours, *times)
    return best_goodput(seconds, failures)
