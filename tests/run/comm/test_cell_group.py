"""Collectives inside a cell: what they leave in memory once they were waited for."""

import pytest

from penstock.run.launch.worker_pool import Crew
from run.cell_jobs import left_after_waiting

pytestmark = pytest.mark.torch


def test_what_was_waited_for_holds_neither_what_was_sent_nor_what_landed(ranks: Crew) -> None:
    """Also where a thread of the transport has not let go of it yet."""
    for _ in range(5):
        for left in ranks.run(left_after_waiting):
            assert left == {"add_up": 0, "scatter_sum": 0, "exchange": 0, "pass_on": 0}
