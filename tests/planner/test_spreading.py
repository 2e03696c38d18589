"""Where a vocabulary on all devices is tried."""

from typing import Any

import pytest

from penstock.planner.divisions import Division, divisions
from penstock.planner.model_loads import ModelLoads
from penstock.planner.problem import PlanProblem, problem_from
from penstock.planner.spreading import LEAST_SPREADING_GAIN, spreading_can_pay, spreading_gain
from planner.problems import row


def _problem(**changes: Any) -> PlanProblem:
    return problem_from(row(**changes))


def _divisions(problem: PlanProblem, in_cell: int) -> list[Division]:
    return [each for each in divisions(problem) if each.in_cell == in_cell]


def test_a_head_is_worth_spreading_where_devices_have_few_layers() -> None:
    """Of 16 layers and a head like 1.6 of them: 8.8 of 9 layers with 2 devices, 4.4 of 5 with 4."""
    loads = ModelLoads((1.0,) * 16, head=1.6)
    assert spreading_gain(loads, 2) == pytest.approx(1 - 8.8 / 9)
    assert spreading_gain(loads, 4) == pytest.approx(1 - 4.4 / 5)
    gains = [spreading_gain(loads, devices) for devices in (2, 4, 8)]
    assert gains == sorted(gains)


def test_layers_that_devices_have_unequally_many_of_are_nothing_to_spread() -> None:
    assert spreading_gain(ModelLoads((1.0,) * 16), 3) == 0
    assert spreading_gain(ModelLoads((1.0, 3.0, 1.0, 1.0)), 2) <= 0


def test_devices_of_several_ranks_have_it_where_it_can_pay() -> None:
    problem = _problem(model="llama3-8b", cluster="h100:16")
    tried = {
        each.pipeline: spreading_can_pay(problem, each, "none")
        for each in _divisions(problem, in_cell=2)
    }
    gains = {devices: spreading_gain(problem.loads, devices) for devices in tried if devices > 1}
    assert not tried.pop(1, False)
    assert tried == {devices: gain >= LEAST_SPREADING_GAIN for devices, gain in gains.items()}
    assert {*tried.values()} == {True, False}
    assert not any(spreading_can_pay(problem, each, "all") for each in _divisions(problem, 2))
    assert all(
        spreading_can_pay(problem, each, "none")
        for each in _divisions(problem, in_cell=1)
        if each.pipeline > 1
    )


@pytest.mark.parametrize("given", [{"vocabulary": True}, {"schedule": "interlaced"}])
def test_what_is_asked_for_is_tried(given: dict[str, Any]) -> None:
    problem = _problem(model="llama3-8b", cluster="h100:16", **given)
    several = [each for each in _divisions(problem, in_cell=2) if each.pipeline > 1]
    assert all(spreading_can_pay(problem, each, "none") for each in several)
