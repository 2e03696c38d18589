"""A process plans the next batch, and its plans are those that would be made here."""

import io
import os
import pickle
import signal
from dataclasses import replace

import pytest

from penstock.plan.sequence_groups.batch import flexible_groups, static_groups
from penstock.plan.sequence_groups.planner import GroupPlanner
from penstock.plan.sequence_groups.planning_process import PlanningProcess, serve_plans
from plan.sequence_groups.samples import worked_example

LENGTHS = [9, 4, 4, 4, 4]


@pytest.mark.processes
def test_plans_of_the_process_are_those_of_this_one() -> None:
    cost = worked_example()
    right = flexible_groups(LENGTHS, 8, cost)
    planner = PlanningProcess(GroupPlanner(8, cost))
    try:
        assert planner.plan(LENGTHS).batch == right
        planner.ask(LENGTHS)
        assert planner.plan(LENGTHS).batch == right
        planner.ask([4, 4])
        assert planner.plan(LENGTHS).batch == right
        os.kill(planner._process.pid, signal.SIGKILL)
        planner.ask(LENGTHS)
        assert planner.plan(LENGTHS).batch == right
    finally:
        planner.close()


def test_what_has_no_plan_is_answered_with_nothing() -> None:
    cost, answers = worked_example(), io.BytesIO()
    asked = io.BytesIO(b"".join(map(pickle.dumps, (GroupPlanner(8, cost), (99,), (4, 4)))))
    serve_plans(asked, answers)
    answers.seek(0)
    assert pickle.load(answers) is None
    assert pickle.load(answers)[0] == flexible_groups((4, 4), 8, cost)


def test_section_10_a_planner_groups_in_the_way_that_is_named() -> None:
    cost = worked_example()
    one_size = replace(cost, exchange={4: cost.exchange[4]})
    flexible, adaptive, static = (
        GroupPlanner(8, each, name).plan(LENGTHS).batch
        for name, each in (("flexible", cost), ("batch-adaptive", cost), ("static", one_size))
    )
    assert flexible.seconds == 310.25
    assert adaptive.seconds == 434.25
    assert static == static_groups(LENGTHS, 8, cost, 4)
