"""Crews that measure beside each other, and somebody who does not want to wait for them."""

import os
import signal
import time
from threading import Timer

import pytest

from penstock.profiling.measure.neighbours import Neighbours
from penstock.run.process.rendezvous import Connection

pytestmark = [pytest.mark.torch, pytest.mark.processes, pytest.mark.long]

MEASURING = 120.0


def measured(connection: Connection, seconds: float) -> float:
    """Something that takes its time."""
    time.sleep(seconds)
    return seconds


def test_an_interrupt_does_not_wait_for_what_is_measured() -> None:
    with Neighbours(2, 2 * MEASURING) as neighbours:
        assert neighbours.run(measured, 0.0) == [0.0, 0.0]
        began = time.monotonic()
        timer = Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            neighbours.run(measured, MEASURING)
    assert time.monotonic() - began < MEASURING / 2
