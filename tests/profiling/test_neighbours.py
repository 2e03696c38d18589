"""Crews that measure beside each other, and somebody who does not want to wait for them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.profiling.measure.neighbours import Neighbours
from penstock.run.process.rendezvous import Connection

pytestmark = [pytest.mark.torch, pytest.mark.processes, pytest.mark.long]

MEASURING = 120.0
READY = "ready"


def measured(connection: Connection, seconds: float) -> float:
    """Something that takes its time."""
    time.sleep(seconds)
    return seconds


def measure_for_long() -> None:
    """Two crews that measure at once, once they have shown that they do."""
    with Neighbours(2, 2 * MEASURING) as neighbours:
        assert neighbours.run(measured, 0.0) == [0.0, 0.0]
        print(READY, flush=True)
        neighbours.run(measured, MEASURING)


def test_an_interrupt_does_not_wait_for_what_is_measured() -> None:
    """In a process of its own: whoever runs the tests has other plans for an interrupt."""
    tests = str(Path(__file__).parents[1])
    code = "from profiling.test_neighbours import measure_for_long; measure_for_long()"
    path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    ) as measuring:
        assert measuring.stdout is not None
        assert measuring.stdout.readline().strip() == READY
        time.sleep(2)  # until it measures
        began = time.monotonic()
        measuring.send_signal(signal.SIGINT)
        assert measuring.wait(MEASURING / 2) != 0
    assert time.monotonic() - began < MEASURING / 2
