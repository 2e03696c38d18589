"""The figures of one timeline, as the fields that scripts depend on."""

from fractions import Fraction
from typing import Any

from penstock.core.shape import Shape
from penstock.sim.timeline import Timeline


def timeline_record(timeline: Timeline) -> dict[str, Any]:
    """The contract of `simulate --json`."""
    shape = timeline.schedule.shape
    return {
        "name": timeline.name,
        "devices": shape.devices,
        "microbatches": shape.microbatches,
        "chunks": plain(shape.chunks),
        "slices": slices(shape),
        "ops": len(timeline.schedule.table),
        "makespan": plain(timeline.makespan),
        "span": plain(timeline.span),
        "work": [plain(work) for work in timeline.work],
        "bubble_makespan": plain(timeline.bubble_makespan),
        "bubble_span": plain(timeline.bubble_span),
        "peak": [plain(peak) for peak in timeline.peak],
    }


def slices(shape: Shape) -> int | list[int]:
    """Slices per microbatch: one number where all have the same."""
    counts = set(shape.slices)
    return counts.pop() if len(counts) == 1 else list(shape.slices)


def plain(value: Fraction) -> int | float:
    """A number for JSON: an int where it is whole."""
    return value.numerator if value.denominator == 1 else float(value)
