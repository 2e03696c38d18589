"""Which policy is taken, and what is said of it."""

import pytest

from penstock.errors import PlanError
from penstock.estimate.policies.choice import (
    PolicyPrice,
    fastest_policy,
    gain_words,
    price_lines,
    within,
)

PACK, CHUNK = PolicyPrice("pack", 3.0, 900), PolicyPrice("chunk", 2.0, 100)
FLEX = PolicyPrice("flex", refusal="mesh.sequence is 1")


def test_the_fastest_of_those_that_can_be_run_is_taken() -> None:
    assert fastest_policy([PACK, CHUNK, FLEX]) is CHUNK
    assert fastest_policy([PACK, FLEX]) is PACK
    assert fastest_policy([PACK, PACK._replace(policy="chunk")]) is PACK
    with pytest.raises(PlanError, match="no policy can be run: flex: mesh"):
        fastest_policy([FLEX])


def test_a_policy_without_room_is_left_out_with_the_numbers() -> None:
    full = within(PACK._replace(memory=3 << 30), 1 << 30)
    assert full.refusal == "a rank would need 3.00 GiB and has 1.00 GiB"
    assert within(PACK, 900) is PACK
    assert within(PACK, 0) is PACK
    assert fastest_policy([full, CHUNK]) is CHUNK


def test_the_gain_is_told_against_the_first() -> None:
    assert gain_words([PACK, CHUNK]).endswith("1.50 times as fast as pack")
    assert gain_words([PACK, FLEX]).endswith("no other policy is faster")
    assert gain_words([PACK._replace(refusal="no room"), CHUNK]).endswith("pack cannot be run")
    assert price_lines([FLEX]) == ["flex is not compared: mesh.sequence is 1"]
