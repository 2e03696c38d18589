"""Replicas that share experts train, save and go on as one process does, however many share."""

from pathlib import Path

import pytest

from loops import all_cases
from penstock.arch.mixture import ExpertMixture
from train.reshard.going_on import Crews, goes_on
from train.reshard.jobs import straight
from train.reshard.layouts import ALONE, MIXED, Change

pytestmark = pytest.mark.torch

PAIRS = ALONE._replace(replicas=4, experts=2)
"""Replicas 0 and 1 share experts, and so do 2 and 3: each expert is on two of four ranks."""
ALL_FOUR = PAIRS._replace(experts=4)
TWO_DEVICES = ALONE._replace(family="zb-h1", devices=2, replicas=2, experts=2)
TOKENS = ALONE._replace(replicas=2, experts=2, sequence="ulysses")
CHANGES = [
    Change(MIXED, False, PAIRS, TWO_DEVICES),
    Change(MIXED, False, TWO_DEVICES, PAIRS),
    Change(MIXED, False, ALL_FOUR, PAIRS._replace(experts=1)),
    Change(MIXED, False, TOKENS, ALL_FOUR),
]


def test_every_expert_is_on_the_ranks_that_are_said_to_have_it() -> None:
    """Of 5 experts over each pair of replicas the second has three."""
    layout = PAIRS.plan(CHANGES[0].model).layout
    held = [
        {each.split(".experts.")[1][0] for each in parts if ".experts." in each}
        for parts in (layout.parameters(0, replica=owner).parts for owner in range(4))
    ]
    assert held == [{"0", "1"}, {"2", "3", "4"}] * 2


@pytest.mark.matrix
def test_a_run_goes_on_whoever_shares_the_experts(crews: Crews, tmp_path: Path) -> None:
    model = CHANGES[0].model
    assert isinstance(model.mixture, ExpertMixture)
    right = straight(model, tmp_path / "alone")
    with all_cases() as case:
        for number, change in enumerate(CHANGES):
            with case(change):
                goes_on(change, right, crews, tmp_path / str(number))
