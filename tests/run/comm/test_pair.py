"""Transfers of one pair of devices start when both ends are ready, whatever came before them."""

from collections.abc import Callable
from threading import Event
from time import monotonic, sleep
from typing import Any

import pytest
import torch

from penstock.core.buffers import Buf
from penstock.core.program import Channel
from penstock.core.schedule import Schedule
from penstock.run.comm import pair
from penstock.run.comm.launch_window import LaunchWindow
from penstock.run.comm.nccl import Nccl
from penstock.run.comm.pair import ReceivingEnd, SendingEnd
from penstock.run.launch.worker_pool import Crew
from penstock.run.program.calls import Post
from penstock.schedules import build
from run.comm.wires import LONGEST, Line, Row, TwoRanks
from run.engine_jobs import evaluated_and_trained
from run.jobs import CPU
from run.pair_jobs import (
    given_up,
    groups_made,
    opposite_orders,
    random_orders,
    threads_left,
    trained_over_pairs,
)
from run.plans import plan_of

pytestmark = pytest.mark.torch


def test_transfers_that_are_sent_in_one_order_and_taken_in_the_other_arrive(ranks: Crew) -> None:
    found = ranks.run(opposite_orders, 5)
    for rank, arrived in enumerate(found):
        assert arrived == [1000.0 * ((rank - 1) % 4) + tag for tag in reversed(range(5))]


@pytest.mark.parametrize("slots", [1, 3])
def test_random_orders_and_delays_bring_every_transfer_to_its_place(
    ranks: Crew, slots: int
) -> None:
    assert ranks.run(random_orders, slots, 12, slots, 3) == [2 * 12 * 3] * 4


def test_what_one_transport_has_left_behind_does_not_reach_the_next(ranks: Crew) -> None:
    for rank, found in enumerate(ranks.run(given_up)):
        sender = (rank - 1) % 4
        assert found == [1000.0 * sender, 1000.0 * sender + 1, 0.0]


def test_all_payloads_of_a_direction_share_a_communicator(ranks: Crew) -> None:
    assert ranks.run(groups_made, ("x", "g", "skip")) == [[8, 8, 8]] * 4


def test_no_thread_is_left_after_a_transport_is_closed(ranks: Crew) -> None:
    assert ranks.run(threads_left) == [0] * 4


class Gate:
    """Work of a device that is done when somebody says so."""

    def __init__(self) -> None:
        self.awaited, self.done = Event(), Event()

    def synchronize(self) -> None:
        self.awaited.set()
        assert self.done.wait(LONGEST)


def _ignored(failure: BaseException) -> None:
    """Who waits is told."""


def _ends(line: Line) -> tuple[Any, Any]:
    """Both ends of a pair of this process; the sender is rank 0 of the group."""
    sender, receiver = TwoRanks(line, 0), TwoRanks(line, 1)
    ends = (
        SendingEnd(sender, CPU, 0, LaunchWindow(), _ignored),  # type: ignore[arg-type]
        ReceivingEnd(receiver, CPU, 0, LaunchWindow(), _ignored),  # type: ignore[arg-type]
    )
    for end in ends:
        end.connect()
    line.sent.clear()
    return ends


def _wait_until(condition: Callable[[], bool]) -> None:
    end = monotonic() + LONGEST
    while not condition() and monotonic() < end:
        sleep(0.001)


@pytest.mark.parametrize("late", ["the tensor is not computed", "the slot is not free"])
def test_nothing_is_launched_before_the_devices_of_both_ends_are_ready(
    late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, gate = Line(), Gate()
    sender, receiver = _ends(line)
    sending = "tensor" in late
    landed, marks = torch.zeros(2), [gate, None] if sending else [None, gate]
    monkeypatch.setattr(pair, "mark_of", lambda device: marks.pop(0) if marks else None)
    leaving = sender.submit(5, torch.ones(2))
    arrival = receiver.submit(5, landed)
    assert gate.awaited.wait(LONGEST)
    said = [(0, 0)] if sending else []  # that the slot is free
    _wait_until(lambda: len(line.sent) >= len(said) and line.queue(0, 0).empty())
    assert line.sent == said
    gate.done.set()
    arrival.wait()
    leaving.wait()
    # the slot, the name, go, the tensor, and that it is awaited
    assert line.sent == [(0, 0), (1, 0), (1, 2), (1, 1), (0, 2)]
    assert landed.tolist() == [1, 1]
    sender.close()
    receiver.close()


def test_a_failure_on_one_pair_reaches_who_waits_on_another() -> None:
    lines = {(0, 1): Line(), (1, 2): Line()}
    lines[0, 1].queue(1, 1).put(torch.zeros(1))  # connects, and says nothing more
    transport = Nccl(Row(1, lines), CPU)  # type: ignore[arg-type]
    transport.open([Channel(0, 1, "x"), Channel(1, 2, "x")])
    arrival = transport.receive(Post(0, 3, 0, 0, Buf("x", 0, 0, 0)), torch.zeros(1))
    lines[1, 2].cut = "the line is cut"
    lines[1, 2].queue(0, 0).put(torch.tensor([4]))  # device 2 has a slot for it
    transport.send(Post(2, 4, 0, 0, Buf("x", 0, 0, 0)), torch.zeros(1))
    for wait in (arrival.wait, transport.drain):
        with pytest.raises(RuntimeError, match="the line is cut"):
            wait()
    with pytest.raises(RuntimeError, match="the line is cut"):
        transport.receive(Post(0, 5, 0, 0, Buf("x", 0, 0, 0)), torch.zeros(1))
    transport.close()  # comes back, though device 0 never answers


SPREADS = {
    "folded": build("zb-v", devices=4, microbatches=4),
    "sliced": build("seq1f1b", devices=4, microbatches=4, slices=3),
}


@pytest.mark.parametrize("schedule", SPREADS.values(), ids=SPREADS.keys())
def test_engines_one_after_the_other_learn_over_pairs_what_they_learn_otherwise(
    ranks: Crew, schedule: Schedule
) -> None:
    plan = plan_of(schedule)
    expected = ranks.run(evaluated_and_trained, plan, 2)
    found = ranks.run(trained_over_pairs, plan, 2)
    assert found == [losses * 2 for losses in expected]
