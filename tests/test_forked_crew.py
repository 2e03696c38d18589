"""Ranks between two jobs use no processor, and work as before."""

import time
from pathlib import Path

import pytest

from forked_crew import RestingCrew
from penstock.run.process.rendezvous import Connection

pytestmark = [pytest.mark.torch, pytest.mark.processes]


def rank_of(connection: Connection, factor: int) -> int:
    return factor * connection.rank


def _state(pid: int) -> str:
    """The letter by which the system says what a process does."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_ranks_stand_still_between_jobs_and_leave_at_the_end() -> None:
    with RestingCrew(2) as crew:
        for factor in (1, 3):
            assert crew.run(rank_of, factor) == [0, factor]
            pids = [member.process.pid for member in crew._members]
            deadline = time.monotonic() + 60
            while {_state(pid) for pid in pids} != {"T"}:
                assert time.monotonic() < deadline
                time.sleep(0.01)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
