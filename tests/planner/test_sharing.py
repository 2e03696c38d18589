"""Candidates that share schedules and tables of seconds cost what each of them costs alone."""

from typing import Any

import pytest

from penstock.core.kernel import compile_small_work
from penstock.estimate import step_schedule
from penstock.estimate.kept import kept_seconds, kept_sums
from penstock.estimate.kept_costs import kept_costs
from penstock.estimate.price import estimate_step
from planner.problems import every

KEPT: Any = (
    *(kept_costs, kept_sums, kept_seconds),
    *(step_schedule._made, step_schedule._proven_step, step_schedule._changed),
    step_schedule.plain_schedule,
)


@pytest.mark.long
def test_a_candidate_costs_the_same_alone_and_after_others() -> None:
    found = every()
    layouts = [found.layout(number) for number in range(0, len(found), len(found) // 40)]
    alone = []
    with compile_small_work():
        for layout in layouts:
            for kept in KEPT:
                kept.cache_clear()
            alone.append(estimate_step(layout))
        for kept in KEPT:
            kept.cache_clear()
        assert [*map(estimate_step, layouts)] == alone
        assert kept_costs.cache_info().hits > 0
        assert [*map(estimate_step, reversed(layouts))] == alone[::-1]
