"""The first cause is claimed once, and errors that only follow from it are recognised."""

import threading
import time

import pytest
import torch.distributed as dist
from torch.distributed import HashStore

from penstock.errors import RunError
from penstock.run.watchdog.first_cause import Cause, claim, expect, first, is_consequence

pytestmark = pytest.mark.torch


def test_only_the_first_claim_counts() -> None:
    store = HashStore()
    assert first(store) is None
    assert [claim(store, rank, "it broke") for rank in range(3)] == [True, False, False]
    assert first(store) == Cause(0, "it broke")


def test_a_cause_is_waited_for_only_for_a_while() -> None:
    begin = time.monotonic()
    assert expect(HashStore(), 0.2) is None
    assert 0.2 <= time.monotonic() - begin < 5


def test_a_cause_that_comes_in_time_is_seen() -> None:
    store = HashStore()
    threading.Timer(0.1, claim, (store, 1, "late")).start()
    assert expect(store, 10.0) == Cause(1, "late")


def test_errors_of_lost_connections_are_consequences() -> None:
    assert is_consequence(RuntimeError("[gloo/pair.cc] Connection closed by peer [::1]:1"))
    assert is_consequence(RuntimeError("writev: Broken pipe"))
    assert is_consequence(dist.DistNetworkError("anything"))
    assert is_consequence(ConnectionResetError())


def test_an_error_raised_from_such_a_one_is_a_consequence() -> None:
    error = RunError("the transfer failed")
    error.__cause__ = RuntimeError("Connection reset by peer")
    assert is_consequence(error)


@pytest.mark.parametrize(
    "error", [RuntimeError("mat1 and mat2 differ"), ValueError("connection closed"), RunError("x")]
)
def test_other_errors_are_causes(error: Exception) -> None:
    assert not is_consequence(error)
