"""What comes out of a search does not depend on the number of its processes."""

import os
import pickle
import time
from dataclasses import dataclass
from multiprocessing import get_context

import pytest

from penstock.errors import RunError
from penstock.parent_process import tie
from penstock.planner.advice import advise
from penstock.planner.answer import plans_record
from penstock.planner.bounding import SharedPieces
from penstock.planner.candidates import all_candidates
from penstock.planner.divisions import Division, divisions
from penstock.planner.known_entries import share_entries
from penstock.planner.problem import problem_from
from penstock.planner.processes import PlanProcesses, _serve
from penstock.planner.records import all_work
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


def test_a_process_whose_answer_nobody_reads_ends_in_silence(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The other end of its line is closed with an answer in it, as where the answer of another
    process was a mistake: the system says that as a connection that was reset."""
    here, there = get_context("fork").Pipe()
    given = (there, (here,), problem_from(FEW), tie())
    process = get_context("fork").Process(target=_serve, args=given)
    process.start()
    there.close()
    here.send(Divide(2))
    assert here.poll(60)
    here.close()
    process.join(60)
    assert process.exitcode == 0
    assert not capfd.readouterr().err


def test_tasks_that_are_given_later_are_done_while_the_first_are() -> None:
    """Both are given before anybody asks what came of the first; answers may be asked for in any
    order."""
    with PlanProcesses(problem_from(FEW), 2) as processes:
        first = processes.begin([Divide(2), Divide(4)])
        later = processes.begin([Divide(5), Divide(8)])
        assert dict(processes.results(later)) == {0: 0.2, 1: 0.125}
        assert dict(processes.results(first)) == {0: 0.5, 1: 0.25}


@dataclass(frozen=True)
class CountKnown:
    """How many lists of schedules a process knows."""

    divisions: tuple[Division, ...]

    def run(self, pieces: SharedPieces) -> int:
        return sum(pieces.entries_key(each) in pieces.known for each in self.divisions)


def test_schedules_that_one_process_lists_are_known_to_all() -> None:
    problem = problem_from(FEW)
    every = tuple(divisions(problem))
    with PlanProcesses(problem, 2) as processes:
        share_entries(every, processes)
        counts = [found for _, found in processes.run([CountKnown(every)] * 8)]
    assert counts == [len(every)] * 8
    assert every
    assert CountKnown(every).run(processes.pieces) == len(every)


def test_what_a_record_does_can_be_sent_to_another_process() -> None:
    every = all_work()
    assert every
    assert all(pickle.loads(pickle.dumps(work)) is work for work in every)
