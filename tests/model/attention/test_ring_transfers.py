"""How much goes round a ring, and when."""

import threading
from itertools import pairwise
from typing import Any

import pytest

from model.attention.dense import Case
from model.attention.ring_ranks import RingRank
from model.parallel.threads import ThreadGroup, run_ranks
from penstock.model.attention.tiled import Tiled
from penstock.model.parallel.group import Work

pytestmark = pytest.mark.torch

Sent = tuple[list[int], list[int]]
"""Elements sent in the forward and in the backward of each slice."""


def passed_on(case: Case, ranks: int) -> list[Sent]:
    """What each rank sends."""

    class CountingRank(RingRank):
        def between(self) -> None:
            levels[self.group.index].append(groups[self.group.index].sent["pass_on"])

    levels: dict[int, list[int]] = {index: [0] for index in range(ranks)}
    groups: dict[int, ThreadGroup] = {}

    def work(group: ThreadGroup) -> Work[Sent]:
        groups[group.index] = group
        rank = CountingRank(case, group)
        saved = yield from rank.forward()
        yield from rank.backward(saved)
        sent = [after - before for before, after in pairwise(levels[group.index])]
        return sent[: len(case.lengths)], sent[len(case.lengths) :][::-1]

    return run_ranks(ranks, work)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_a_rank_sends_its_part_of_all_keys_and_values_so_far_to_every_other(ranks: int) -> None:
    """A rank has 1/R of the keys up to a slice: 2 (keys and values) N G d / R, R - 1 times. In the
    backward their gradients go as often."""
    case = Case((24, 48, 24), ((0,), (0,)), heads=4, kv_heads=2, size=3)
    one_token = case.rows * case.kv_heads * case.size
    forward = [2 * end // ranks * one_token * (ranks - 1) for end in (24, 72, 96)]
    for sent in passed_on(case, ranks):
        assert sent == (forward, [2 * elements for elements in forward])


def test_keys_before_all_documents_of_a_slice_stay_where_they_are() -> None:
    """The last slice begins in a document that began at 32 in one row, at 40 in the other."""
    case = Case((24, 24, 24), ((0, 32), (0, 40)))
    one_token = case.rows * case.kv_heads * case.size
    each = passed_on(case, 2)
    for kind, times in ((0, 1), (1, 2)):
        sent = [sum(rank[kind][slice] for rank in each) for slice in range(3)]
        assert sent == [times * 2 * one_token * tokens for tokens in (24, 48, 72 - 32)]


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ranks note when they compute, among what they start and wait for."""
    for name in ("attend", "gradients"):
        original = getattr(Tiled, name)

        def noting(*arguments: Any, name: str = name, original: Any = original) -> Any:
            events = threading.current_thread().group.events  # type: ignore[attr-defined]
            if events[-1:] != [name]:
                events.append(name)
            return original(*arguments)

        monkeypatch.setattr(Tiled, name, noting)


@pytest.mark.usefixtures("noted")
def test_a_block_is_on_its_way_while_the_one_before_it_is_worked_on() -> None:
    """In the backward gradients, too, are waited for after the work to which they are added."""

    def work(group: ThreadGroup) -> Work[tuple[str, str]]:
        rank = RingRank(Case((24,)), group)
        saved = yield from rank.forward()
        forward = " ".join(group.events)
        group.events.clear()
        yield from rank.backward(saved)
        return forward, " ".join(group.events)

    for forward, backward in run_ranks(3, work):
        assert forward == "pass_on attend wait pass_on attend wait attend"
        assert backward == (
            "pass_on gradients wait "
            "pass_on gradients pass_on wait "  # gradients of the first block that was not its own
            "gradients wait pass_on wait"
        )
