"""Which of several rounds counts, and how the speed of the machine is left out."""

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from penstock.profiling.measure.check import CheckedRound, usual_round  # noqa: E402
from penstock.profiling.measure.timing import usual  # noqa: E402


def measured(seconds: float, slower: float) -> CheckedRound:
    devices: Any = [SimpleNamespace(seconds=seconds / 2), SimpleNamespace(seconds=seconds)]
    return CheckedRound(devices, slower)


def test_the_round_that_counts_is_the_median_of_the_speed_apart() -> None:
    usual_one = measured(12.0, 1.2)  # 10 s on the machine as it was
    others = [measured(9.0, 1.0), measured(11.5, 1.0)]
    for rounds in permutations([usual_one, *others]):
        assert usual_round(rounds) is usual_one
    assert usual_one.seconds == 12.0


def test_a_round_whose_memory_does_not_suffice_is_told() -> None:
    failed = CheckedRound(None, 1.0)
    assert usual_round([measured(1.0, 1.0), failed, measured(2.0, 1.0)]) is failed


def test_ranks_that_disturb_each_other_have_the_median_and_a_lone_one_its_least() -> None:
    host, seconds = torch.device("cpu"), [3.0, 1.0, 2.0]
    assert usual(seconds, host) == 1.0
    assert usual(seconds, host, ranks=8) == 2.0
    assert usual(seconds, torch.device("cuda")) == 2.0
