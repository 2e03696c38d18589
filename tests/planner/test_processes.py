"""What comes out of a search does not depend on the number of its processes."""

import os
import time
from dataclasses import dataclass

import pytest

from penstock.errors import RunError
from penstock.planner.advice import advise
from penstock.planner.answer import plans_record
from penstock.planner.bounding import SharedPieces
from penstock.planner.candidates import all_candidates
from penstock.planner.problem import problem_from
from penstock.planner.processes import PlanProcesses
from penstock.planner.search import search_plans
from penstock.planner.simulations import Simulations
from planner.problems import row

pytestmark = [pytest.mark.long, pytest.mark.processes]

FEW = row(mesh="tensor=1,sequence=1,pipeline=2", rows=1, schedule="1f1b", offload="none")


def _answer(count: int) -> object:
    problem = problem_from(FEW)
    with PlanProcesses(problem, count) as processes:
        every, simulations = all_candidates(problem, processes=processes), Simulations(processes)
        found = search_plans(every, 1, 8, lambda count, best: None, simulations)
        return plans_record(advise(found, simulations))


def test_two_processes_answer_as_one_does() -> None:
    assert _answer(2) == _answer(1)


@dataclass(frozen=True)
class Divide:
    by: int

    def run(self, pieces: SharedPieces) -> float:
        return 1 / self.by


@dataclass(frozen=True)
class Die:
    def run(self, pieces: SharedPieces) -> None:
        os._exit(3)


@dataclass(frozen=True)
class Process:
    """Whose task it was, which took so long."""

    seconds: float = 0.0

    def run(self, pieces: SharedPieces) -> int:
        time.sleep(self.seconds)
        return os.getpid()


def test_tasks_of_one_key_are_done_by_one_process() -> None:
    with PlanProcesses(problem_from(FEW), 2) as processes:
        a, b = (found for _, found in sorted(processes.run([Process(), Process(1)], ["a", "b"])))
        again = dict(processes.run([Process(1), Process()], ["b", "a"]))
    assert a != b
    assert (again[0], again[1]) == (b, a)


def test_a_process_without_tasks_of_its_own_takes_one_of_another() -> None:
    with PlanProcesses(problem_from(FEW), 2) as processes:
        tasks = [Process(), Process(1), Process(), Process()]
        found = dict(processes.run(tasks, ["a", "b", "a", "b"]))
    assert found[0] == found[2] == found[3] != found[1]


def test_a_mistake_in_a_process_is_raised_here() -> None:
    with PlanProcesses(problem_from(FEW), 2) as processes, pytest.raises(ZeroDivisionError):
        [*processes.run([Divide(1), Divide(0)])]


def test_a_process_that_is_ended_is_an_error_and_no_wait() -> None:
    with PlanProcesses(problem_from(FEW), 2) as processes:
        with pytest.raises(RunError, match="ended by the system") as caught:
            [*processes.run([Die(), Divide(1)])]
        assert caught.value.hint
