"""The bench of data policies: what it plans and predicts, and steps that train on the same."""

import pickle
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from penstock.arch.config import ModelConfig
from penstock.bench.policies import COMPARED_POLICIES, plan_modelled
from penstock.bench.policy_fit import FittedTimes, OpCost, fitted_costs, measured_steps
from penstock.bench.run import read_bench_settings
from penstock.cost.model import UnitCost
from penstock.estimate.policies.steps import whole_orders
from penstock.run.launch.worker_pool import Crew
from penstock.schedules import find
from penstock.sim import simulate

pytestmark = [pytest.mark.torch, pytest.mark.long]


@pytest.fixture(scope="module")
def settings() -> Mapping[str, Any]:
    """Few short documents on two devices of two ranks."""
    found = read_bench_settings()["policies"]
    sizes = {"ranks": 4, "sequence": 2, "devices": 2, "documents": 20, "batches": 1}
    return {**found, **sizes, "longest": 4096, "median": 100, "seconds": 0.2}


def test_every_policy_has_the_same_tokens_and_a_prediction(settings: Mapping[str, Any]) -> None:
    planned = plan_modelled(settings)
    assert [*planned.steps] == [*COMPARED_POLICIES]
    for number, lengths in enumerate(planned.batches):
        pack, *others = (planned.steps[policy][number] for policy in COMPARED_POLICIES)
        assert {sum(map(sum, step.lengths)) for step in others} == {sum(lengths)}
        padding = sum(
            step[-1][-1][1] for step, end in zip(pack.slices, pack.padded, strict=True) if end
        )
        assert sum(map(sum, pack.lengths)) == sum(lengths) + padding
    assert min(min(each) for each in planned.seconds.values()) > 0


def test_a_case_travels_to_other_processes(settings: Mapping[str, Any]) -> None:
    case = plan_modelled(settings).run.case
    assert pickle.loads(pickle.dumps(case)) == case


def test_costs_are_found_again_from_the_times_that_they_make() -> None:
    order = whole_orders(find(read_bench_settings()["policies"]["schedule"]), 2)
    steps = measured_steps(order, 512, 4)
    costs = {
        (kind, stage, degree): OpCost(1e-3, 1e-5 * (1 + stage), 1e-8 * degree)
        for kind in "FB"
        for stage in range(2)
        for degree in (1, 2, 4)
    }
    made = FittedTimes(costs, 4)
    seconds = [[made.of(step) for step in steps]]
    found = fitted_costs(steps, seconds)
    assert found.keys() == costs.keys()
    for key, cost in costs.items():
        assert found[key] == pytest.approx(cost, rel=1e-6)
    again = FittedTimes(found, 4)
    groups = again.groups(128)
    assert groups.seconds([100], 1) == pytest.approx(2 * (1e-3 + 2e-3 + 1e-8 * 100**2 / 2))
    whole = simulate(steps[-1].schedule, UnitCost(op_times=_exact(made.of(steps[-1]))))
    assert whole.makespan > 0


def _exact(times: Mapping[Any, float]) -> dict[Any, Fraction]:
    return {op: Fraction(round(10**9 * seconds), 10**9) for op, seconds in times.items()}


def test_losses_do_not_depend_on_the_policy(settings: Mapping[str, Any], ranks: Crew) -> None:
    from penstock.bench.measure.policy_steps import policy_steps

    planned = plan_modelled(settings)
    tiny = ModelConfig(**settings["tiny"], element_bytes=4)
    case = replace(planned.run.case, longest=4096)
    run = replace(planned.run, case=case, model=tiny, divided=1)
    losses = []
    for policy in COMPARED_POLICIES:
        found = ranks.run(policy_steps, run, policy, planned.batches)
        assert all(len(steps) == 2 for steps in found)
        assert min(step.seconds for steps in found for step in steps) > 0
        losses.append([step.loss for step in found[0]])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] == pytest.approx(losses[0], rel=1e-5)
