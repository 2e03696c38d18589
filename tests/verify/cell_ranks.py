"""The ranks of a trial as threads of one process, with the engines that train.

What they do together can be listened to, call by call, and any call can be left out: a rank then
goes on with what it has by itself.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from model.parallel.threads import ThreadGroup, run_ranks
from penstock.model.parallel.group import Pending, TensorSize, Work
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.transport import Alone
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.shardings import sharding_named
from penstock.verify.trial import trial_plan
from penstock.verify.variants import Trial

CPU = torch.device("cpu")
SUMS = ("batch_pieces", "engine", "stage_end", "sharding")
"""Modules of `penstock.run.step` that add up over groups of processes."""
PASSED_OVER = {
    "linear_add",
    "WayBack.forward",
    "HeadExchange._exchange",
    "RingSteps.pass_keys",
    "RingSteps.pass_on",
    "add_up_in_threads",
}
"""Functions that call for others: the call is theirs."""
PASSED_OVER_FILES = (Path(__file__).name, "tokens.py", "threads.py")


class CallSite(NamedTuple):
    """A place of the code where ranks do something together."""

    where: str
    line: int
    how: str
    purpose: object
    """What the group is for, as its mesh says."""


class LeftOut(NamedTuple):
    """One call of one site: the first one is number 0."""

    site: CallSite
    number: int


class Journal:
    """What one rank calls, and what of it is left out."""

    def __init__(self, left_out: LeftOut | None = None) -> None:
        self.calls: Counter[CallSite] = Counter()
        self.exchanged: dict[str, list[int]] = {}
        """Elements for other ranks in each exchange, by where it is."""
        self._left_out = left_out

    def leaves_out(self, how: str, purpose: object) -> bool:
        """Note a call; whether it is left out."""
        where = _caller()
        site = CallSite(where.f_code.co_qualname, where.f_lineno, how, purpose)
        self.calls[site] += 1
        return LeftOut(site, self.calls[site] - 1) == self._left_out

    def note_exchange(self, elements: int) -> None:
        self.exchanged.setdefault(_caller().f_code.co_qualname, []).append(elements)


def _caller() -> FrameType:
    """Who asks for it, past those who ask for others."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        passed_over = Path(code.co_filename).name in PASSED_OVER_FILES
        if not passed_over and code.co_qualname not in PASSED_OVER:
            return frame
        frame = frame.f_back
    raise AssertionError("nobody has called")


class Done:
    """Nothing to wait for."""

    def wait(self) -> None:
        return None


class HeardGroup:
    """A group whose calls are noted; one that is left out gives a rank what it has by itself."""

    def __init__(self, group: ThreadGroup, journal: Journal) -> None:
        self._group, self._journal = group, journal
        self.size, self.index = group.size, group.index

    def add_up(self, tensor: Tensor) -> Pending:
        return Done() if self._leaves_out("add_up") else self._group.add_up(tensor)

    def take_largest(self, tensor: Tensor) -> Pending:
        left_out = self._leaves_out("take_largest")
        return Done() if left_out else self._group.take_largest(tensor)

    def gather(self, part: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Pending]:
        if not self._leaves_out("gather"):
            return self._group.gather(part, sizes)
        whole = part.new_zeros((sum(sizes), *part.shape[1:]))
        whole[self._span(sizes)] = part
        return whole, Done()

    def scatter_sum(self, whole: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Pending]:
        if not self._leaves_out("scatter_sum"):
            return self._group.scatter_sum(whole, sizes)
        return whole[self._span(sizes)].clone(), Done()

    def exchange(
        self, parts: Sequence[Tensor], sizes: Sequence[TensorSize]
    ) -> tuple[list[Tensor], Pending]:
        others = [part.numel() for rank, part in enumerate(parts) if rank != self.index]
        self._journal.note_exchange(sum(others))
        if not self._leaves_out("exchange"):
            return self._group.exchange(parts, sizes)
        found = [parts[0].new_zeros(size) for size in sizes]
        found[self.index] = parts[self.index].clone()
        return found, Done()

    def pass_on(
        self, tensors: Sequence[Tensor], sizes: Sequence[TensorSize]
    ) -> tuple[list[Tensor], Pending]:
        if not self._leaves_out("pass_on"):
            return self._group.pass_on(tensors, sizes)
        return [_fitted(tensor, size) for tensor, size in zip(tensors, sizes)], Done()

    def _leaves_out(self, how: str) -> bool:
        return self._journal.leaves_out(how, self._group.purpose)

    def _span(self, sizes: Sequence[int]) -> slice:
        first = sum(sizes[: self.index])
        return slice(first, first + sizes[self.index])


def _fitted(own: Tensor, size: TensorSize) -> Tensor:
    """Own rows in a tensor of another number of rows."""
    found = own.new_zeros(size)
    rows = min(len(own), len(found))
    found[:rows] = own[:rows]
    return found


class Owners:
    """The ranks to whom ranges are dealt; they are asked as a group of processes is."""

    def __init__(self, group: HeardGroup) -> None:
        self.heard = group

    def rank(self) -> int:
        return self.heard.index

    def size(self) -> int:
        return self.heard.size


class ThreadMesh(Mesh):
    """A mesh whose ranks are threads."""

    def __init__(self, grid: Grid, threads: ThreadGroup, journal: Journal) -> None:
        super().__init__(grid, threads.rank)
        self._threads, self._journal = threads, journal

    @property
    def world(self) -> Any:
        return self._one_of("world", [[*range(self.grid.ranks)]])

    def sharers(self, ranks: int) -> Any:
        group: Any = super().sharers(ranks)
        return None if group is None else Owners(group)

    def _member(self, axis: str) -> Any:
        return self.along(axis)

    def _one_of(self, key: object, groups: list[list[int]]) -> Any:
        mine = next((sorted(ranks) for ranks in groups if self.rank in ranks), [self.rank])
        group = self._threads.among(mine, key)
        return HeardGroup(group, self._journal) if len(mine) > 1 else None


def add_up_in_threads(tensor: Tensor, group: HeardGroup | None) -> None:
    if group is not None:
        group.add_up(tensor).wait()


def scatter_in_threads(tensor: Tensor, cuts: Sequence[int], group: Owners | None) -> None:
    if group is not None:
        own, pending = group.heard.scatter_sum(tensor[cuts[0] : cuts[-1]], _sizes(cuts))
        pending.wait()
        tensor[slice(*cuts[group.rank() :][:2])] = own


def gather_in_threads(tensor: Tensor, cuts: Sequence[int], group: Owners | None) -> None:
    if group is not None:
        own = tensor[slice(*cuts[group.rank() :][:2])].clone()
        whole, pending = group.heard.gather(own, _sizes(cuts))
        pending.wait()
        tensor[cuts[0] : cuts[-1]] = whole


def _sizes(cuts: Sequence[int]) -> list[int]:
    return [stop - start for start, stop in pairwise(cuts)]


STAND_INS = {
    **{f"{module}.add_up": add_up_in_threads for module in SUMS},
    "sharding.scatter_sum": scatter_in_threads,
    "sharding.gather_ranges": gather_in_threads,
    "full_sharding.gather_ranges": gather_in_threads,
}
"""What stands where modules of `penstock.run.step` talk to processes."""


@contextmanager
def _in_threads() -> Iterator[None]:
    """Let engines talk to threads wherever they talk to processes."""
    with ExitStack() as stack:
        for name, function in STAND_INS.items():
            stack.enter_context(mock.patch(f"penstock.run.step.{name}", function))
        stack.enter_context(mock.patch("penstock.run.step.engine.agree_on_plan"))
        yield


class RankReport(NamedTuple):
    """What a rank has arrived at, and what it called for that."""

    result: Any
    calls: Counter[CallSite]
    exchanged: dict[str, list[int]]


def on_threads(
    trial: Trial, work: Callable[[Engine, Trial], Any], left_out: LeftOut | None = None
) -> list[RankReport]:
    """What every rank of a trial of one device arrives at."""
    cell = trial.cell
    grid = Grid(trial.replicas, 1, cell.ring, cell.ulysses, cell.tensor)

    def rank_work(threads: ThreadGroup) -> Work[RankReport]:
        journal = Journal(left_out)
        mesh = ThreadMesh(grid, threads, journal)
        engine = Engine(
            trial_plan(trial),
            mesh,
            Alone(),
            adam=AdamW(),
            device=CPU,
            sharding=sharding_named(trial.shard),
        )
        result = work(engine, trial)
        engine.close()
        return RankReport(result, journal.calls, journal.exchanged)
        yield  # the driver of the engine has waited for everything

    with _in_threads():
        return run_ranks(grid.ranks, rank_work)
