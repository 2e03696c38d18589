"""Ranks meet at a store, and know who is missing."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import HashStore

from penstock.errors import RunError
from penstock.run.process.environment import RankPlace
from penstock.run.process.store import assemble, clone, host, of_attempt, peek, store_of

pytestmark = pytest.mark.torch


def test_ranks_that_have_all_come_go_on() -> None:
    store = HashStore()
    with ThreadPoolExecutor(3) as pool:
        came = [pool.submit(assemble, store, RankPlace(rank, 3), 20.0) for rank in range(3)]
    assert [each.result() for each in came] == [None] * 3


def test_ranks_that_do_not_come_are_named() -> None:
    with pytest.raises(RunError, match=r"rank 0, 2 of 3 has not come within 0\.1 s"):
        assemble(HashStore(), RankPlace(1, 3), 0.1)


def test_what_an_earlier_attempt_stored_is_not_seen() -> None:
    store = HashStore()
    first, second = (of_attempt(store, RankPlace(attempt=attempt)) for attempt in range(2))
    first.set("cause", "old")
    assert peek(first, "cause") == "old"
    assert peek(second, "cause") == ""


def test_a_clone_and_another_rank_see_what_is_stored() -> None:
    server = host()
    first, second = (
        store_of(RankPlace(rank, 2, rank, 2, port=server.port, hosted=True)) for rank in range(2)
    )
    first.set("key", "value")
    assert peek(clone(first), "key") == peek(second, "key") == "value"


def test_a_store_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    port = host().port  # nobody listens there once the store is gone
    monkeypatch.setattr("penstock.run.process.store.MEETING", timedelta(seconds=1))
    with pytest.raises(RunError, match=f"rank 1 cannot reach the store at 127.0.0.1:{port}"):
        store_of(RankPlace(1, 2, port=port, hosted=True))
