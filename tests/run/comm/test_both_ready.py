"""A transfer is handed out when it is ready at both ends, once, whichever end was first."""

from itertools import permutations
from threading import Thread

import pytest
import torch

from penstock.run.comm.both_ready import BothReady, Transfer
from penstock.run.comm.side_stream import Ticket

pytestmark = pytest.mark.torch


def _transfer(tag: int) -> Transfer:
    return Transfer(tag, torch.zeros(1), None, Ticket())


def test_the_last_of_the_three_is_given_the_transfer_and_nobody_before() -> None:
    """A name may come before anything was submitted; a device is ready only for what was."""
    for order in permutations(("add", "ready", "name")):
        if order.index("ready") < order.index("add"):
            continue
        transfers, transfer, given = BothReady(), _transfer(7), []
        for what in order:
            if what == "add":
                transfers.add(transfer)
            else:
                note = transfers.note_ready if what == "ready" else transfers.note_named
                given.append(note(7))
        assert given == [None, transfer]


def test_a_transfer_that_is_not_ready_holds_up_no_other() -> None:
    transfers, first, second = BothReady(), _transfer(1), _transfer(2)
    transfers.add(first)
    transfers.add(second)
    assert transfers.note_ready(1) is None
    assert transfers.note_named(2) is None
    assert transfers.note_ready(2) is second
    assert transfers.note_named(1) is first


def test_a_tag_can_be_used_again_when_its_transfer_has_gone() -> None:
    transfers = BothReady()
    for _ in range(2):
        transfer = _transfer(3)
        transfers.add(transfer)
        with pytest.raises(AssertionError, match="transfer 3 is under way already"):
            transfers.add(_transfer(3))
        assert transfers.note_ready(3) is None
        assert transfers.note_named(3) is transfer


def test_names_are_awaited_while_something_submitted_has_none() -> None:
    transfers, heard = BothReady(), list[bool]()
    listening = Thread(target=lambda: heard.append(transfers.awaits_name()))
    listening.start()
    transfers.note_named(1)  # named ahead: nothing of this end waits for it
    transfers.add(_transfer(1))
    assert not heard
    transfers.add(_transfer(2))
    listening.join(60)
    assert heard == [True]
    transfers.note_named(2)
    ending = Thread(target=lambda: heard.append(transfers.awaits_name()))
    ending.start()
    assert not transfers.close()  # both are still to be moved
    ending.join(60)
    assert heard == [True, False]


def test_a_failure_reaches_everybody_who_waits_and_whoever_comes_later() -> None:
    transfers, waiting = BothReady(), [_transfer(tag) for tag in range(3)]
    for transfer in waiting:
        transfers.add(transfer)
    transfers.fail(ValueError("the line is cut"))
    for transfer in waiting:
        with pytest.raises(ValueError, match="the line is cut"):
            transfer.ticket.wait()
    with pytest.raises(ValueError, match="the line is cut"):
        transfers.add(_transfer(9))
    assert not transfers.awaits_name()
    assert not transfers.close()
