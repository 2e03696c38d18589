"""The ranks that other tests lean on do what they say, and find misuse."""

import pytest
import torch
from torch import Tensor

from model.parallel.threads import RankStoppedError, ThreadGroup, run_ranks
from penstock.model.parallel.group import RankGroup, Work

pytestmark = pytest.mark.torch


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def test_ranks_add_up_and_take_the_largest_in_place() -> None:
    def work(group: RankGroup) -> Work[tuple[list[float], list[float]]]:
        total, largest = numbers(group.index, 1), numbers(group.index, -group.index)
        pending = group.add_up(total), group.take_largest(largest)
        assert total.isnan().all()
        yield pending[1]
        yield pending[0]
        return total.tolist(), largest.tolist()

    assert run_ranks(3, work) == [([3, 3], [2, 0])] * 3


def test_uneven_parts_are_gathered_and_summed() -> None:
    sizes = [2, 0, 1]

    def work(group: RankGroup) -> Work[tuple[list[float], list[float]]]:
        part = torch.full((sizes[group.index],), float(group.index))
        whole, pending = group.gather(part, sizes)
        yield pending
        own, pending = group.scatter_sum(whole + group.index, sizes)
        yield pending
        return whole.tolist(), own.tolist()

    assert run_ranks(3, work) == [([0, 0, 2], own) for own in ([3, 3], [], [9])]


def test_parts_of_different_shapes_are_exchanged() -> None:
    def work(group: RankGroup) -> Work[list[Tensor]]:
        parts = [torch.full((rank + 1, 2), float(group.index)) for rank in range(2)]
        received, pending = group.exchange(parts, [(group.index + 1, 2)] * 2)
        yield pending
        return received

    for rank, received in enumerate(run_ranks(2, work)):
        assert [each.tolist() for each in received] == [
            [[sender] * 2] * (rank + 1) for sender in range(2)
        ]


def test_tensors_go_round_to_the_next_rank() -> None:
    def work(group: ThreadGroup) -> Work[tuple[list[Tensor], int]]:
        before = (group.index - 1) % group.size
        tensors = [torch.arange(group.index), numbers(group.index)]
        received, pending = group.pass_on(tensors, [(before,), (1,)])
        yield pending
        return received, group.sent["pass_on"]

    for rank, ((ints, floats), sent) in enumerate(run_ranks(3, work)):
        assert (floats.item(), sent) == ((rank - 1) % 3, rank + 1)
        assert ints.tolist() == list(range((rank - 1) % 3))


def test_some_of_the_ranks_are_a_group_of_their_own() -> None:
    def work(group: ThreadGroup) -> Work[tuple[float, float]]:
        along = group.among([0, 1] if group.rank < 2 else [2, 3])
        across = group.among([group.rank % 2, group.rank % 2 + 2])
        row, column = numbers(group.rank), numbers(group.rank)
        pending = along.add_up(row), across.add_up(column)
        yield pending[0]
        yield pending[1]
        return row.item(), column.item()

    assert run_ranks(4, work) == [(1, 2), (1, 4), (5, 2), (5, 4)]


def test_an_error_of_one_rank_is_raised_and_ends_the_others() -> None:
    def work(group: RankGroup) -> Work[None]:
        if group.index == 1:
            raise ValueError("rank 1 has failed")
        yield group.add_up(numbers(1))

    with pytest.raises(ValueError, match="rank 1 has failed"):
        run_ranks(3, work)


def test_a_rank_that_does_not_come_is_not_waited_for_without_end() -> None:
    def work(group: RankGroup) -> Work[None]:
        if group.index == 0:
            yield group.add_up(numbers(1))

    with pytest.raises(RankStoppedError, match=r"of ranks \(0, 1\) only these made call 0"):
        run_ranks(2, work, limit=0.2)


def test_ranks_that_call_different_methods_are_found() -> None:
    def work(group: RankGroup) -> Work[None]:
        yield group.add_up(numbers(1)) if group.index else group.take_largest(numbers(1))

    with pytest.raises(AssertionError, match="call 0 differs between ranks"):
        run_ranks(2, work)


def test_what_was_given_may_not_be_changed_under_way() -> None:
    def work(group: RankGroup) -> Work[None]:
        given = numbers(1)
        _, pending = group.pass_on([given], [(1,)])
        given.add_(1)
        yield pending

    with pytest.raises(AssertionError, match="was given was changed under way"):
        run_ranks(2, work)


def test_what_is_received_may_not_be_changed_under_way() -> None:
    def work(group: RankGroup) -> Work[None]:
        (received,), pending = group.pass_on([numbers(1)], [(1,)])
        received.zero_()
        yield pending

    with pytest.raises(AssertionError, match="was received was changed under way"):
        run_ranks(2, work)


def test_another_size_than_expected_is_found() -> None:
    def work(group: RankGroup) -> Work[None]:
        _, pending = group.pass_on([torch.zeros(group.index + 1)], [(1,)])
        yield pending

    with pytest.raises(AssertionError, match=r"pass_on brings \(2,\) where \(1,\) is expected"):
        run_ranks(2, work)
