"""Sums over a group, and over nobody."""

import pytest
import torch

from penstock.run.comm.collective import PATIENCE, add_up
from penstock.run.launch.worker_pool import Crew
from run.jobs import summed
from run.patience_jobs import patiences

pytestmark = pytest.mark.torch


def test_every_rank_has_the_sum(ranks: Crew) -> None:
    assert ranks.run(summed) == [(10.0, 5.0)] * 4


def test_no_group_and_no_store_gives_up_within_hours(ranks: Crew) -> None:
    """Torch gives new groups half an hour, and a store what it was made with."""
    assert ranks.run(patiences) == [{PATIENCE}] * 4


def test_without_a_group_a_tensor_stays_as_it_is() -> None:
    tensor = torch.tensor([1.0, 2.0])
    add_up(tensor, None)
    assert tensor.tolist() == [1.0, 2.0]
