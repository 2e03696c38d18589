"""What a searched order must come with: a proof of its order, of its memory and of its channels."""

from collections.abc import Collection, Sequence
from fractions import Fraction
from itertools import pairwise

from penstock.check import check
from penstock.core.schedule import Schedule
from penstock.cost.model import Cost, UnitCost
from penstock.search.offload.room import proven_levels
from penstock.sim import Timeline, simulate


def proven_peaks(schedule: Schedule, cost: Cost | None = None) -> list[Fraction]:
    """What no device exceeds in any timing that the order allows."""
    return proven_levels(schedule, cost or UnitCost())


def verified(
    schedule: Schedule,
    cost: Cost,
    limit: Fraction | int,
    channels: Sequence[Collection[int]] = (),
) -> Timeline:
    """The timeline of an order that keeps to its limit and its channels, proven."""
    assert check(schedule).findings == ()
    assert max(proven_peaks(schedule, cost)) <= limit
    timeline = simulate(schedule, cost)
    assert max(timeline.peak) <= limit
    for devices in channels:
        assert not overlapping(timeline, devices)
    return timeline


def overlapping(timeline: Timeline, devices: Collection[int], kinds: str = "OL") -> list[str]:
    """Copies of some devices that run at the same time."""
    spans = [s for s in timeline.spans() if s.op.kind in kinds and s.device in devices]
    spans.sort(key=lambda span: (span.start, span.end))
    return [f"{a.op} {b.op}" for a, b in pairwise(spans) if b.start < a.end]
