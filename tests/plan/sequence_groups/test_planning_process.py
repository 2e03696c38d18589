"""A process plans the next batch, and its plans are those that would be made here."""

import io
import os
import pickle
import signal

import pytest

from penstock.plan.sequence_groups.batch import flexible_groups
from penstock.plan.sequence_groups.planning_process import PlanningProcess, serve_plans
from plan.sequence_groups.samples import worked_example

LENGTHS = [9, 4, 4, 4, 4]


@pytest.mark.processes
def test_plans_of_the_process_are_those_of_this_one() -> None:
    cost = worked_example()
    right = flexible_groups(LENGTHS, 8, cost)
    planner = PlanningProcess(8, cost)
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
    asked = io.BytesIO(b"".join(map(pickle.dumps, ((8, cost), (99,), (4, 4)))))
    serve_plans(asked, answers)
    answers.seek(0)
    assert pickle.load(answers) == ()
    assert pickle.load(answers)[0] == flexible_groups((4, 4), 8, cost)
