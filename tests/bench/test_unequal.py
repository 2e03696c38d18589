from collections.abc import Mapping
from typing import Any

import pytest

from penstock.bench.run import read_bench_settings
from penstock.bench.unequal import batch_lengths, most_alive, packed_order, sliced_order
from penstock.check import check
from penstock.cost.model import UnitCost
from penstock.sim import simulate


@pytest.fixture(scope="module")
def settings() -> Mapping[str, Any]:
    return read_bench_settings()["unequal"]


def test_lengths_are_those_of_a_large_encyclopedia(settings: Mapping[str, Any]) -> None:
    """Half of a million documents have at most 347 tokens, 90 % at most 2,112, 99 % 10,919."""
    lengths = sorted(batch_lengths({**settings, "documents": 20_000}, 0))
    for share, tokens in ((0.5, 347), (0.9, 2112), (0.99, 10919)):
        assert lengths[int(share * len(lengths))] == pytest.approx(tokens, rel=0.1)
    assert lengths[-1] <= settings["longest"]


@pytest.mark.long
def test_both_ways_run_the_same_tokens_and_slices_are_faster_and_smaller(
    settings: Mapping[str, Any],
) -> None:
    for number in range(settings["batches"]):
        lengths = batch_lengths(settings, number)
        packed, sliced = packed_order(settings, lengths), sliced_order(settings, lengths)
        assert sum(map(sum, packed[0].tokens)) == sum(map(sum, sliced[0].tokens)) == sum(lengths)
        assert all(check(schedule).proven for _, schedule in (packed, sliced))
        before, after = (
            simulate(schedule, UnitCost()).makespan for _, schedule in (packed, sliced)
        )
        assert before > 1.5 * after
        assert most_alive(*packed) > 5 * most_alive(*sliced)
