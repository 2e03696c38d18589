"""Wait for a server that another process is about to start, and say so while nobody answers.

A wrong address or port looks like a rank 0 that is late. Torch would try for its whole timeout
twice, without a word, and end with a trace of its own functions.
"""

import socket
from math import inf
from time import monotonic, sleep

from penstock.errors import RunError
from penstock.run.process.environment import RankPlace
from penstock.terminal import say_error

POLL = 0.1
"""Seconds between two tries."""
ONE_TRY = 5.0
"""Seconds that one try may take, where an address neither answers nor refuses."""
NOTICE_AFTER = 10.0
"""Seconds after which the first rank of a machine says for whom it waits."""

HINT = "check MASTER_ADDR and MASTER_PORT, and that the ranks can reach that machine"


def await_listener(here: RankPlace, seconds: float) -> None:
    """Return once somebody listens where the store of a rank should be."""
    began = monotonic()
    notice = began + NOTICE_AFTER if here.local_rank == 0 else inf
    while reason := _refusal(here):
        if monotonic() - began > seconds:
            raise RunError(
                f"rank {here.rank} cannot reach the store at {here.address}:{here.port} within "
                f"{seconds:g} s: {reason}",
                hint=HINT,
            )
        if monotonic() > notice:
            notice = inf
            say_error(
                f"rank {here.rank} waits for the store at {here.address}:{here.port} ({reason}), "
                f"up to {seconds:g} s\nhint: {HINT}"
            )
        sleep(POLL)


def _refusal(here: RankPlace) -> str:
    """Why nobody can be reached there; empty once somebody can."""
    try:
        with socket.create_connection((here.address, here.port), timeout=ONE_TRY):
            return ""
    except OSError as error:
        return error.strerror or str(error)
