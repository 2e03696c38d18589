from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from penstock.cost.model import UnitCost
from penstock.schedules import build
from penstock.sim import simulate
from penstock.sim.timeline import Timeline
from schedules.picture import chunk_units


def ahead(p: int, m: int, v: int = 2, **options: Any) -> Timeline:
    """A stage's forward takes 1, its backward 2."""
    times = {"F": Fraction(v), "I": Fraction(2 * v), "W": Fraction(0)}
    schedule = build(
        "chronos-ahead", devices=p, microbatches=m, chunks=v, options=options, prices=times
    )
    return simulate(schedule, UnitCost(times=times))


def test_recompute_in_idle_time_runs_at_full_rate() -> None:
    """Section 4 (b): at most 249 for eight devices and 32 microbatches, with 8 to 10 units; fused,
    it would be 303 with 5 units, and 273 with half of 1F1B recomputed."""
    timeline = ahead(8, 32, ahead=1)
    assert timeline.makespan == 245
    assert chunk_units(timeline.peak, 2) == [5, 5, 5, 5, 5, 5, 4, 1]
    assert timeline.work == (32 * 7,) * 8


@pytest.mark.long
@pytest.mark.parametrize("p", [3, 4, 5, 7, 8, 16])
def test_what_remains_of_the_bubble_is_that_of_an_interleaved_pipeline(p: int) -> None:
    """(p - 1)(F + B)/v, half of what 1F1B idles, in the memory of p/2 stages and one."""
    timeline = ahead(p, 4 * p, ahead=1)
    assert timeline.makespan - timeline.work[0] == (p - 1) * 3
    assert max(chunk_units(timeline.peak, 2)) == (p + 1) // 2 + 1


@pytest.mark.long
@pytest.mark.parametrize(("p", "m", "v"), [(4, 8, 2), (6, 20, 2), (3, 9, 3), (4, 9, 4)])
def test_more_memory_is_never_slower(p: int, m: int, v: int) -> None:
    """Section 4: what may be held ahead is the knob between memory and time."""
    found = [ahead(p, m, v, ahead=count) for count in range(1, 7)]
    assert all(less.makespan >= more.makespan for less, more in pairwise(found))
    assert found[0].makespan > found[-1].makespan


def test_a_device_recomputes_before_the_gradient_is_there() -> None:
    timeline = ahead(4, 16)
    spans = {span.op: span for span in timeline.spans()}
    early = [
        op
        for op, span in spans.items()
        if op.kind == "R" and span.end < spans[op._replace(kind="B", stage=op.stage + 1)].end
    ]
    assert early


def test_latency_is_part_of_what_it_plans_with() -> None:
    """Forwards wait for transfers, so more of the recompute runs in between."""
    times = {"F": Fraction(2), "I": Fraction(4), "W": Fraction(0), "hop": Fraction(1)}
    request = {"devices": 4, "microbatches": 16, "chunks": 2}
    cost = UnitCost(times={kind: times[kind] for kind in "FIW"}, hop=times["hop"])
    planned = simulate(build("chronos-ahead", **request, prices=times), cost)
    without = simulate(build("chronos-recompute", **request, prices=times), cost)
    assert planned.makespan < without.makespan
