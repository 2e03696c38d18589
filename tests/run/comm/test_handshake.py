"""Ranks that were told different things are refused before the first step."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import HashStore

from penstock.errors import RunError
from penstock.run.comm.handshake import agree, differences
from penstock.run.process.environment import RankPlace
from penstock.run.process.rendezvous import Connection

pytestmark = pytest.mark.torch

LONG = [f"key_{number} = {number}" for number in range(50)]


def meet(facts: list[Mapping[str, str]], wait: float = 20.0) -> list[str]:
    """What each rank is told; nothing where it may go on."""
    store = HashStore()

    def one(rank: int) -> str:
        try:
            agree(Connection(RankPlace(rank, len(facts)), store), facts[rank], wait=wait)
        except RunError as error:
            return error.message
        return ""

    with ThreadPoolExecutor(len(facts)) as pool:
        return list(pool.map(one, range(len(facts))))


def test_equal_facts_are_agreed_whatever_their_order() -> None:
    assert meet([{"a": "1", "b": "2"}, {"b": "2", "a": "1"}]) == ["", ""]


def test_a_different_fact_is_refused_on_every_rank_with_both_sides() -> None:
    facts = [{"program": "ab", "rate": "0.01"}] * 3 + [{"program": "ab", "rate": "0.001"}]
    assert meet(facts) == ["rate: rank 0 has 0.01, rank 3 has 0.001"] * 4


def test_a_fact_that_is_missing_on_one_side_is_refused() -> None:
    assert meet([{"a": "1"}, {}]) == ["a: rank 0 has 1, rank 1 has nothing"] * 2


def test_of_long_facts_the_first_line_that_differs_is_shown() -> None:
    other = [*LONG[:30], "key_30 = -1", *LONG[31:]]
    assert differences({"config": "\n".join(LONG)}, {"config": "\n".join(other)}, 2) == [
        "config: line 31: rank 0 has key_30 = 30, rank 2 has key_30 = -1"
    ]


def test_a_long_fact_that_only_goes_on_is_shown_as_such() -> None:
    assert differences({"config": "\n".join(LONG)}, {"config": "\n".join(LONG[:-1])}, 1) == [
        "config: line 50: rank 0 has key_49 = 49, rank 1 has nothing"
    ]


def test_a_rank_that_says_nothing_is_named() -> None:
    connection = Connection(RankPlace(0, 3), HashStore())
    with pytest.raises(RunError, match=r"ranks 1, 2 have not reported their facts within 0\.1 s"):
        agree(connection, {}, wait=0.1)


def test_a_lone_rank_agrees_with_itself() -> None:
    store = HashStore()
    agree(Connection(RankPlace(), store), {"a": "1"})
    assert not store.check(["agree/facts/0/digest"])
