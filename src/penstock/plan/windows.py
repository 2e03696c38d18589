"""How long the weights of a stage rest between two steps: the time to update them elsewhere.

Optimizer state is several times as large as the weights and is used once per step. It can stay on
the host if there is time: from the last gradient of a stage in one step to the first forward of
that stage in the next, its gradients go to the host, are applied there, and new weights come back.
Last stages of the model rest longest: they are the first to go back and the last to go forward.
Steps follow each other without overlap. Source: arXiv:2503.03182, for its offload.
"""

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from penstock.core.homes import weight_homes
from penstock.core.meaning import MEANING
from penstock.sim.timeline import Timeline


def _kinds(buffer: str, side: int) -> list[str]:
    """Kinds that read (side 0) or write (side 1) a buffer."""
    return [k for k, entry in MEANING.items() if any(ref.buffer == buffer for ref in entry[side])]


USING, ADDING = _kinds("weight", 0), _kinds("dw", 1)
"""Kinds that use a stage's weights, and kinds that add to their gradient."""


def update_windows(timeline: Timeline) -> dict[int, Fraction]:
    """Time from the last gradient of each stage to its first use in the next step.

    >>> from penstock.schedules import build
    >>> from penstock.sim import simulate
    >>> step = simulate(build("1f1b", devices=2, microbatches=2))
    >>> {stage: int(window) for stage, window in update_windows(step).items()}
    {0: 0, 1: 3}
    """
    table = timeline.schedule.table
    using, adding = table.of_kinds(USING), table.of_kinds(ADDING)
    step = int(timeline.end.max() - timeline.start.min())
    windows: dict[int, Fraction] = {}
    for stage in weight_homes(timeline.schedule):
        here = table.stage == stage
        last = int(timeline.end[np.flatnonzero(here & adding)].max())
        first = int(timeline.start[np.flatnonzero(here & using)].min())
        windows[stage] = (step - last + first) * timeline.tick
    return windows


def resting_stages(
    windows: Mapping[int, Fraction], needed: Mapping[int, Fraction]
) -> tuple[int, ...]:
    """Stages whose update elsewhere takes no longer than their window; the last ones first.

    `needed` is the time to bring gradients there, to apply them, and to bring weights back.

    >>> resting_stages({0: Fraction(0), 1: Fraction(3)}, {0: Fraction(2), 1: Fraction(2)})
    (1,)
    """
    fitting = [stage for stage, window in windows.items() if needed[stage] <= window]
    return tuple(sorted(fitting, reverse=True))
