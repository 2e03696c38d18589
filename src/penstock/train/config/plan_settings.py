"""Who chooses the plan of a run, whether it changes while the run trains, and what decides."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from penstock.train.config.fields import Count, MisfitError, Natural, Section, Share

LONGEST_SEARCH = 10_000.0
"""Seconds of its own clock that a solver may be given: hours of a core."""


class PlanSettings(Section):
    """How the plan of a run is chosen, and whether it changes. What is learnt does not depend on
    it."""

    auto: bool = False
    """Whether schedule, mesh, slices and the like are chosen at the start, for the machine that
    the run finds; what the configuration gives of these stays as it is."""
    profile: str = ""
    """A file that `penstock profile` has written. Times are predicted with it, and with `auto`
    plans are compared by it. Empty with `auto` measures this machine for some seconds; otherwise
    times are predicted from the ops of the run itself."""
    policy: Literal["fixed", "adaptive", "improving"] = "fixed"
    """`fixed` keeps the order of `pipeline.schedule`. `adaptive` runs microbatches in groups that
    grow while transfers are slow (Ada-Grouper). `improving` lets a solver look for a better order
    with measured times, in a process of its own (OptPipe)."""
    every: Count = 10
    """Steps between two looks at what a step took, after which the plan may change."""
    gain: Share = 0.02
    """Share of a step's time that a change must save."""
    memory: Natural = 0
    """Bytes that each rank may take; 0 for what is free when the run starts. Plans that need more
    are not considered."""
    rows: tuple[Count, ...] = ()
    """With `adaptive`: sizes of a microbatch to choose from, for the same batch; empty keeps
    `batch.rows`."""
    effort: Annotated[float, Field(gt=0, le=LONGEST_SEARCH)] = 2.0
    """With `improving`: how long the solver may search, in seconds of its own clock, which counts
    work and is about 5 times slower than real time."""
    orders: str = ""
    """With `improving`: folder for the orders that were found, from which later runs with the same
    times take them; empty uses `orders` in the run's folder."""

    @model_validator(mode="after")
    def _refuse_misfits(self) -> Self:
        if self.auto and self.policy != "fixed":
            raise MisfitError(
                f"auto is true, but policy is {self.policy!r}",
                hint="leave one of both out: auto chooses once, at the start",
            )
        for key, policy in (("rows", "adaptive"), ("orders", "improving")):
            if getattr(self, key) and self.policy != policy:
                raise MisfitError(
                    f"{key} is given, but policy is {self.policy!r}",
                    hint=f'leave {key} out, or set policy to "{policy}"',
                )
        return self
