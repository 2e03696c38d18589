"""Options of `simulate` and `compare` for steps whose ops do not take what was planned."""

from dataclasses import dataclass
from typing import Annotated, Any, Self

import typer

from penstock.sim.timeline import Timeline
from penstock.sim.variation import Varied, slow_down, vary

TAIL = 95
"""Percent of the draws that a table's column stands for."""
LIMITS_SHOWN = (50, TAIL, 99)


@dataclass(frozen=True)
class VariationFlags:
    """Other times than planned."""

    jitter: Annotated[
        float,
        typer.Option(
            metavar="PART",
            help="Draw the times of ops at random, with this standard deviation: 0.05 is 5 %.",
        ),
    ] = 0.0
    draws: Annotated[int, typer.Option(help="Steps that --jitter draws.")] = 1000
    straggler: Annotated[
        float,
        typer.Option(
            metavar="FACTOR", help="One device takes so many times as long; each in turn."
        ),
    ] = 1.0

    @property
    def slows(self) -> bool:
        """Whether a slow device was asked for."""
        return self.straggler != 1


NO_VARIATION = VariationFlags()


@dataclass(frozen=True)
class Variation:
    """What other times do to one timeline; what was not asked for is None."""

    flags: VariationFlags
    varied: Varied | None
    slow: list[float] | None

    @classmethod
    def of(cls, timeline: Timeline, flags: VariationFlags) -> Self:
        varied = vary(timeline, flags.jitter, flags.draws) if flags.jitter else None
        return cls(flags, varied, slow_down(timeline, flags.straggler) if flags.slows else None)

    def record(self) -> dict[str, Any]:
        """Fields in addition to those of the timeline."""
        found: dict[str, Any] = {}
        if self.varied is not None:
            found["jitter"] = {
                "jitter": self.flags.jitter,
                "draws": len(self.varied.ratios),
                "mean": self.varied.mean,
                **{f"p{part}": self.varied.percentile(part) for part in LIMITS_SHOWN},
                "draws_per_second": self.varied.draws_per_second,
            }
        if self.slow is not None:
            found["straggler"] = {"factor": self.flags.straggler, "ratios": self.slow}
        return found

    def ratios(self) -> dict[str, float]:
        """What stands for each in a table, as a part of the makespan: a limit that nineteen in
        twenty draws keep, and the worst of the slow devices."""
        found = {}
        if self.varied is not None:
            found["with jitter"] = self.varied.percentile(TAIL)
        if self.slow is not None:
            found["with straggler"] = max(self.slow)
        return found

    def lines(self) -> list[str]:
        """All of it in words."""
        found = []
        if self.varied is not None:
            limits = [f"of {part}% {self.varied.percentile(part):.3f}" for part in LIMITS_SHOWN]
            found.append(
                f"times that vary by {self.flags.jitter:.1%}, {len(self.varied.ratios):,} draws: "
                f"{self.varied.mean:.3f} of the makespan on average; at most, {', '.join(limits)}"
            )
        if self.slow is not None:
            worst = max(range(len(self.slow)), key=self.slow.__getitem__)
            found.append(
                f"one device {self.flags.straggler:g} times as slow: {min(self.slow):.3f} to "
                f"{self.slow[worst]:.3f} of the makespan, the most with device {worst}"
            )
        return found
