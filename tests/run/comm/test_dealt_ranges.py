"""Sums and gathers of tensors of which every rank owns a range."""

import pytest
import torch

from penstock.run.comm.dealt_ranges import equal_ranges, gather_ranges, scatter_sum, torch_function
from penstock.run.launch.worker_pool import Crew
from run.shard_jobs import dealt, dealt_in_calls

pytestmark = pytest.mark.torch

CUTS = {
    "equal": [0, 3, 6, 9, 12],
    "unequal": [0, 2, 6, 9, 12],
    "an empty one": [0, 5, 5, 6, 12],
    "a part of the tensor": [2, 4, 6, 9, 11],
}


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS.keys())
@pytest.mark.parametrize("message", [2, 100])
def test_each_rank_has_the_sum_of_its_range_and_then_all_have_all(
    ranks: Crew, cuts: list[int], message: int
) -> None:
    total = [4.0 * number + 600 for number in range(12)]
    for rank, found in enumerate(ranks.run(dealt, cuts, message)):
        assert found.summed == total[cuts[rank] : cuts[rank + 1]]
        outside = [float(n + 100 * rank) for n in range(12)]
        expected = outside[: cuts[0]] + total[cuts[0] : cuts[-1]] + outside[cuts[-1] :]
        assert found.gathered == expected


@pytest.mark.parametrize("name", ["equal", "unequal"])
def test_collectives_of_the_back_end_do_the_same_in_place(ranks: Crew, name: str) -> None:
    cuts, total = CUTS[name], [4.0 * number + 600 for number in range(12)]
    for rank, found in enumerate(ranks.run(dealt_in_calls, cuts)):
        assert found.summed == total[cuts[rank] : cuts[rank + 1]]
        assert found.gathered == total or name == "unequal"


def test_without_a_group_a_tensor_stays_as_it_is() -> None:
    tensor = torch.tensor([1.0, 2.0])
    scatter_sum(tensor, [0, 2], None)
    gather_ranges(tensor, [0, 2], None)
    assert tensor.tolist() == [1.0, 2.0]


def test_ranges_are_even_or_not() -> None:
    assert equal_ranges([0, 3, 6])
    assert not equal_ranges([0, 3, 7])


def test_the_newest_name_of_a_function_is_taken() -> None:
    assert torch_function("no_such_name", "all_reduce") is torch.distributed.all_reduce
