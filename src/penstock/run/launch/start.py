"""The one way in which ranks are started on this machine, whichever verb needs them.

They meet at a store in this process that other machines cannot reach, under a secret that other
runs do not know. Each stands in a process group of its own: what is pressed at the terminal reaches
them through the process that answers for them, once. None outlives that process.
"""

import secrets
import subprocess
from collections.abc import Collection, Sequence
from typing import NamedTuple

from torch._C._distributed_c10d import Store

from penstock.parent_process import tie
from penstock.run.process.environment import RankPlace, child_environment, refuse_environment
from penstock.run.process.store import host, of_attempt, own_part

SECRET_BYTES = 16

RankProcess = subprocess.Popen[bytes]


class OutputPair(NamedTuple):
    """Where standard output and error of a process go; None is where those of this process go."""

    out: int | None = None
    err: int | None = None


AS_HERE = OutputPair()


class LocalRanks:
    """The places of all ranks of a run on this machine, and the store at which they meet."""

    def __init__(self, ranks: int) -> None:
        refuse_environment()
        self.ranks = ranks
        self._secret = secrets.token_hex(SECRET_BYTES)
        self._server = host()

    @property
    def store(self) -> Store:
        """The part of the store that is not torch's."""
        return own_part(of_attempt(self._server, self.place(0)))

    def place(self, rank: int) -> RankPlace:
        return RankPlace(
            rank,
            self.ranks,
            rank,
            self.ranks,
            port=self._server.port,
            hosted=True,
            secret=self._secret,
        )

    def start(
        self,
        rank: int,
        program: Sequence[str],
        sinks: OutputPair = AS_HERE,
        descriptors: Collection[int] = (),
    ) -> RankProcess:
        """Start a rank; it inherits these descriptors."""
        tied = tie()
        return subprocess.Popen(
            list(program),
            env={**child_environment(self.place(rank)), **tied.environment},
            pass_fds=[tied.descriptor, *descriptors],
            stdin=subprocess.DEVNULL,
            stdout=sinks.out,
            stderr=sinks.err,
            process_group=0,
        )
