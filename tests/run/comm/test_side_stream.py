"""Work beside the main thread: in order, waited for, and its failures raised where it is needed."""

import threading
import time

import pytest
import torch

from penstock.run.comm.side_stream import SideStream, Ticket

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")


def test_work_is_done_in_order_on_a_thread_of_its_own() -> None:
    stream, done = SideStream("copies", CPU), []
    tickets = [stream.submit(lambda n=n: done.append((n, threading.get_ident()))) for n in range(5)]
    tickets[-1].wait()
    assert [number for number, _ in done] == list(range(5))
    assert {thread for _, thread in done} != {threading.get_ident()}
    stream.close()


def test_submitting_does_not_wait_for_the_work() -> None:
    stream, go = SideStream("copies", CPU), threading.Event()
    ticket = stream.submit(lambda: go.wait() and None)
    go.set()  # reached: submit has come back while the work was waiting
    ticket.wait()
    stream.close()


def test_work_waits_for_tickets_of_other_streams() -> None:
    first, second, said = SideStream("one", CPU), SideStream("two", CPU), []

    def slow() -> None:
        time.sleep(0.05)
        said.append("slow")

    earlier = first.submit(slow)
    second.submit(lambda: said.append("after"), after=[earlier]).wait()
    assert said == ["slow", "after"]
    first.close()
    second.close()


def test_a_failure_is_raised_by_whoever_waits_and_by_what_came_after() -> None:
    stream = SideStream("copies", CPU)

    def fail() -> None:
        raise ValueError("no room")

    failed = stream.submit(fail)
    later = stream.submit(lambda: None, after=[failed])
    unhurt = stream.submit(lambda: None)
    for ticket in (failed, later):
        with pytest.raises(ValueError, match="no room"):
            ticket.wait()
    unhurt.wait()
    stream.close()


def test_what_is_done_already_needs_no_wait() -> None:
    Ticket().done().wait()


def test_a_closed_stream_has_done_everything_first() -> None:
    stream, done = SideStream("copies", CPU), []
    for number in range(20):
        stream.submit(lambda n=number: done.append(n))
    stream.close()
    assert done == list(range(20))
