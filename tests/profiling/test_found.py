"""What counts of what several ranks measured, from ranks whose speed is known."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from penstock.core.ops import Op  # noqa: E402
from penstock.profiling.measure.found import (  # noqa: E402
    MeasuredRound,
    RankFound,
    speeds,
    usual_rows,
    usual_steps,
)
from penstock.profiling.measure.steps import MeasuredSteps  # noqa: E402

FORWARD, BACKWARD = Op("F", 0, 0, 0), Op("I", 0, 0, 0)
NO_MEMORY: Any = None


def steps(seconds: float, forward: float) -> MeasuredSteps:
    """A step of which a share is the forward, and the rest but a tenth the backward."""
    ops = {FORWARD: forward * seconds, BACKWARD: (0.9 - forward) * seconds}
    return MeasuredSteps([seconds], seconds, ops, 0.01 * seconds, NO_MEMORY)


def measured(slower: float, forward: float = 0.3, kernel: float = 1.0) -> MeasuredRound:
    """A round of a machine that is so many times slower; the second case takes half a second."""
    row = {"seconds": kernel * slower, "flops_per_second": 1 / (kernel * slower)}
    cases = [steps(slower, forward), steps(0.5 * slower, forward)]
    return MeasuredRound(cases, {"products": [row]})


def ranks(*rounds: list[MeasuredRound], device: str = "cpu") -> list[RankFound]:
    return [RankFound({}, {"device": device}, False, each, []) for each in rounds]


def test_rounds_in_which_the_machine_was_slower_count_as_if_it_had_not_been() -> None:
    rounds = [measured(1.0), measured(1.2), measured(0.9)]
    found = ranks(rounds, rounds)
    assert speeds(found) == pytest.approx([1.0, 1.2, 0.9])
    assert [usual_steps(found, case).seconds for case in (0, 1)] == pytest.approx([1.0, 0.5])
    (row,) = usual_rows(found, "products")
    assert (row["seconds"], row["flops_per_second"]) == pytest.approx((1.0, 1.0))


def test_each_op_has_its_mean_share_of_all_ranks_so_that_the_rest_is_no_op_that_was_disturbed() -> (
    None
):
    found = usual_steps(ranks([measured(1.0, 0.2)], [measured(1.0, 0.3)], [measured(1.0, 0.7)]), 0)
    assert found.ops[FORWARD] == pytest.approx(0.4)
    assert found.seconds - sum(found.ops.values()) == pytest.approx(0.1)
    assert found.each == [1.0, 1.0, 1.0]


def test_of_kernels_the_median_of_all_ranks_counts() -> None:
    found = ranks(*([measured(1.0, kernel=kernel)] for kernel in (1.0, 5.0, 1.1)))
    (row,) = usual_rows(found, "products")
    assert row["seconds"] == pytest.approx(1.1)


def test_alone_a_host_has_its_least_and_a_gpu_its_median() -> None:
    rounds = [measured(1.2), measured(1.0), measured(1.1)]
    for device, seconds in (("cpu", 1.0), ("cuda", 1.1)):
        found = ranks(rounds, device=device)
        assert usual_steps(found, 0).seconds == seconds
        assert usual_rows(found, "products")[0]["seconds"] == seconds
        assert len(usual_steps(found, 0).each) == 3
