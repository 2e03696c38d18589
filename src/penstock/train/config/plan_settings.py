"""Whether the plan of a run changes while it trains, and what decides about it."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from penstock.train.config.fields import Count, MisfitError, Natural, Section, Share

LONGEST_SEARCH = 10_000.0
"""Seconds of its own clock that a solver may be given: hours of a core."""


class PlanSettings(Section):
    """Whether the order of a step changes during the run. What is learnt does not depend on it."""

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
        for key, policy in (("rows", "adaptive"), ("orders", "improving")):
            if getattr(self, key) and self.policy != policy:
                raise MisfitError(
                    f"{key} is given, but policy is {self.policy!r}",
                    hint=f'leave {key} out, or set policy to "{policy}"',
                )
        return self
