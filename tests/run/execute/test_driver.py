"""Work that waits: alone it waits at once, braided the others go on meanwhile."""

from collections.abc import Generator

import pytest

from penstock.run.execute.driver import braid, finish

pytestmark = pytest.mark.torch


class Handle:
    """Something under way that says when it was waited for."""

    def __init__(self, said: list[str], name: str) -> None:
        self.said, self.name = said, name

    def wait(self) -> None:
        self.said.append(f"wait {self.name}")


def strand(said: list[str], name: str, parts: int) -> Generator[Handle, None, None]:
    """Work in some parts with a communication between any two."""
    for part in range(parts):
        said.append(f"{name}{part}")
        if part < parts - 1:
            yield Handle(said, f"{name}{part}")


def test_alone_a_work_waits_at_once() -> None:
    said: list[str] = []
    finish(strand(said, "a", 3))
    assert said == ["a0", "wait a0", "a1", "wait a1", "a2"]


def test_work_without_communication_is_a_plain_call() -> None:
    finish(None)
    braid([None, None])


def test_braided_strands_take_turns_where_one_would_wait() -> None:
    said: list[str] = []
    braid([strand(said, "a", 3), strand(said, "b", 3)])
    assert said == [
        *("a0", "b0"),
        *("wait a0", "a1", "wait b0", "b1"),
        *("wait a1", "a2", "wait b1", "b2"),
    ]


def test_a_short_strand_leaves_the_rest_to_the_long_one() -> None:
    said: list[str] = []
    braid([strand(said, "a", 1), strand(said, "b", 3)])
    assert said == ["a0", "b0", "wait b0", "b1", "wait b1", "b2"]


def test_a_plain_call_in_a_pair_is_over_before_the_other_strand_goes_on() -> None:
    said: list[str] = []

    def plain() -> None:
        said.append("plain")

    braid(work for work in (strand(said, "a", 2), plain()))
    assert said == ["plain", "a0", "wait a0", "a1"]


def test_an_error_of_a_strand_is_raised() -> None:
    def broken() -> Generator[Handle, None, None]:
        yield Handle([], "x")
        raise ValueError("lost")

    with pytest.raises(ValueError, match="lost"):
        braid([broken(), strand([], "a", 2)])
