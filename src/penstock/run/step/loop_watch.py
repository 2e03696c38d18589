"""A watch over the ranks of a training loop that somebody else has written.

Whoever started the ranks, they have met at a store of torch.distributed; the watch beats through
it, and a rank that hangs is named by the others and ends the run. Between two steps a rank is in
code that nobody here knows: it may take as long as a rank may be stuck.
"""

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from torch import distributed
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed import DistError

from penstock.run.comm.mesh import Mesh
from penstock.run.execute.executor import Executor
from penstock.run.process.environment import read_place
from penstock.run.process.rendezvous import Connection
from penstock.run.process.store import clone, own_part
from penstock.run.watchdog.alarm import Patience
from penstock.run.watchdog.position import EVERYBODY, Phase, Tracker, at
from penstock.run.watchdog.watchdog import Watch

BETWEEN_STEPS = Phase("is in the loop outside of a step")
AGREEING = Phase("waits for all ranks to agree on a batch", "agree on a batch", EVERYBODY)


class LoopWatch:
    """Follows this rank from step to step, and listens to the others."""

    def __init__(self, mesh: Mesh, patience: float) -> None:
        self._mesh, self._tracker = mesh, Tracker()
        self._tracker.at = BETWEEN_STEPS
        self._watch = self._start(patience)

    def follow(self, executor: Executor) -> None:
        """Say where in the lane of this executor the rank is."""
        if executor.observer is not self._tracker:
            executor.observer = self._tracker
        ranks = self._mesh.ranks_of(self._mesh.replica)
        self._tracker.follow(executor.lane, ranks.__getitem__)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around a step; an error in it says where the rank was."""
        self._tracker.step += 1
        try:
            self._tracker.at = AGREEING
            yield
        except Exception as error:
            error.add_note(self._words())
            raise
        finally:
            self._tracker.at = BETWEEN_STEPS

    @contextmanager
    def gathers(self, what: str) -> Iterator[None]:
        """In the block this rank waits for all to do something."""
        with self._tracker.gathers(what):
            yield

    def close(self) -> None:
        """Tell the others that this rank has done its part."""
        watch, self._watch = self._watch, None
        if watch is not None:
            atexit.unregister(self.close)
            watch.__exit__(None, None, None)

    def _start(self, patience: float) -> Watch | None:
        store = _store_of_ranks() if self._mesh.world is not None else None
        if store is None:
            return None
        place = replace(read_place(), rank=self._mesh.rank, world=self._mesh.grid.ranks)
        apart = PrefixStore(f"pipeline-{self._mesh.take_number()}", own_part(store))
        watch = Watch(Connection(place, apart), self._tracker, Patience(stuck=patience))
        atexit.register(self.close)  # who leaves a loop without a word has done its part too
        return watch.__enter__()

    def _words(self) -> str:
        where = f"rank {self._mesh.rank}, {at(self._tracker.position().where)}"
        return "\n\n".join(filter(None, (where, self._tracker.picture())))


def _store_of_ranks() -> Store | None:
    """The store at which the ranks have met, where it can be asked from a side thread."""
    try:
        return clone(distributed.distributed_c10d._get_default_store())
    except (AttributeError, RuntimeError, ValueError, DistError):
        return None  # a kind of store without connections
