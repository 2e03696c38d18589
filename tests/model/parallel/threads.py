"""Ranks as threads of one process, so that work which needs several of them runs in a plain test.

They hold their callers to what `RankGroup` asks: all members call the same methods in the same
order; what is received holds no numbers before it is waited for; what was given has to be
unchanged when it is. Sums are taken in the order of the ranks, so a second run is equal bit for
bit.

    def work(group: ThreadGroup) -> Work[Tensor]:
        total = torch.tensor(group.index + 1.0)
        yield group.add_up(total)
        return total

    assert run_ranks(3, work) == [6.0] * 3
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from penstock.model.parallel.group import TensorSize, Work

Result = TypeVar("Result")

LIMIT = 60.0
"""Seconds after which ranks that still wait are given up."""


class RankStoppedError(Exception):
    """Another rank has failed, or does not come."""


def run_ranks(
    size: int, work: Callable[["ThreadGroup"], Work[Result]], limit: float = LIMIT
) -> list[Result]:
    """The results of all ranks, each of which runs its work to the end; the first error else."""
    board = Board(time.monotonic() + limit)
    ranks = [_Rank(ThreadGroup(board, range(size), index), work) for index in range(size)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(max(board.deadline - time.monotonic(), 0) + 1.0)
    if board.error is not None:
        raise board.error
    late = [rank.group.index for rank in ranks if rank.is_alive()]
    assert not late, f"ranks {late} are still at work after {limit:g} s"
    return [rank.result[0] for rank in ranks]


class ThreadGroup:
    """One rank's view of some ranks that are threads; see `RankGroup`."""

    def __init__(
        self, board: "Board", members: Sequence[int], rank: int, purpose: object = None
    ) -> None:
        """`members` and `rank` are numbers of threads."""
        self.members, self.rank, self.purpose = tuple(members), rank, purpose
        self.sent: Counter[str] = Counter()
        """Elements that left for other ranks, by method; of what is added up, those given."""
        self.events: list[str] = []
        """The methods that were called, and `wait` where one was waited for."""
        self._board, self._calls = board, 0
        self._others: dict[object, ThreadGroup] = {}

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def index(self) -> int:
        return self.members.index(self.rank)

    def among(self, members: Sequence[int], purpose: object = None) -> "ThreadGroup":
        """The group of some of the threads, of which this is one. Groups of other purposes have
        calls of their own, which may be made meanwhile."""
        own = ThreadGroup(self._board, members, self.rank, purpose)
        return self._others.setdefault((own.members, purpose), own)

    def add_up(self, tensor: Tensor) -> "PendingCall":
        return self._in_place("add_up", tensor, torch.add)

    def take_largest(self, tensor: Tensor) -> "PendingCall":
        return self._in_place("take_largest", tensor, torch.maximum)

    def gather(self, part: Tensor, sizes: Sequence[int]) -> tuple[Tensor, "PendingCall"]:
        assert len(part) == sizes[self.index], f"{len(part)} rows given, not {sizes[self.index]}"
        whole = _unknown(part, (sum(sizes), *part.shape[1:]))
        self.sent["gather"] += part.numel() * (self.size - 1)
        pending = self._start("gather", [part], [whole])
        return whole, pending.then(lambda given: [torch.cat([each for (each,) in given])])

    def scatter_sum(self, whole: Tensor, sizes: Sequence[int]) -> tuple[Tensor, "PendingCall"]:
        assert len(whole) == sum(sizes), f"{len(whole)} rows given, not {sum(sizes)}"
        own = _unknown(whole, (sizes[self.index], *whole.shape[1:]))
        self.sent["scatter_sum"] += whole.numel() - own.numel()
        first = sum(sizes[: self.index])
        pending = self._start("scatter_sum", [whole], [own])
        return own, pending.then(
            lambda given: [_fold(torch.add, given)[first : first + sizes[self.index]]]
        )

    def exchange(
        self, parts: Sequence[Tensor], sizes: Sequence[TensorSize]
    ) -> tuple[list[Tensor], "PendingCall"]:
        assert len(parts) == len(sizes) == self.size, "a part for every rank, and from every one"
        received = [_unknown(part, size) for part, size in zip(parts, sizes)]
        others = [part for rank, part in enumerate(parts) if rank != self.index]
        self.sent["exchange"] += sum(part.numel() for part in others)
        pending = self._start("exchange", parts, received)
        return received, pending.then(lambda given: [parts[self.index] for parts in given])

    def pass_on(
        self, tensors: Sequence[Tensor], sizes: Sequence[TensorSize]
    ) -> tuple[list[Tensor], "PendingCall"]:
        received = [_unknown(tensor, size) for tensor, size in zip(tensors, sizes, strict=True)]
        self.sent["pass_on"] += sum(tensor.numel() for tensor in tensors) * (self.size > 1)
        pending = self._start("pass_on", tensors, received)
        return received, pending.then(lambda given: given[self.index - 1])

    def _in_place(
        self, method: str, tensor: Tensor, join: Callable[[Tensor, Tensor], Tensor]
    ) -> "PendingCall":
        given = tensor.clone()
        tensor.copy_(_unknown(tensor, tuple(tensor.shape)))
        self.sent[method] += tensor.numel()
        return self._start(method, [given], [tensor]).then(lambda given: [_fold(join, given)])

    def _start(
        self, method: str, given: Sequence[Tensor], received: Sequence[Tensor]
    ) -> "PendingCall":
        call = Call(self.members, self._calls, self.purpose)
        self._calls += 1
        self.events.append(method)
        pending = PendingCall(self, method, call, given, received)
        self._board.post(call, self.rank, method, pending.copies)
        return pending

    def collect(self, call: "Call") -> "list[list[Tensor]]":
        """What all members have given, once they have."""
        self.events.append("wait")
        return self._board.collect(call, self.members)


class Call(NamedTuple):
    """A call that all members of a group make."""

    members: tuple[int, ...]
    number: int
    """How many calls they made before this one."""
    purpose: object
    """What the group is for."""


Given = list[list[Tensor]]
"""The tensors that each member of a group gave, in the order of the members."""


class PendingCall:
    """A call that waits for the other members."""

    def __init__(
        self,
        group: ThreadGroup,
        method: str,
        call: Call,
        given: Sequence[Tensor],
        received: Sequence[Tensor],
    ) -> None:
        self._group, self._method, self._call = group, method, call
        self._given, self._received = list(given), list(received)
        self.copies = [tensor.clone() for tensor in given]
        self._untouched = [tensor.clone() for tensor in received]
        self._result: Callable[[Given], Sequence[Tensor]] | None = None

    def then(self, result: Callable[[Given], Sequence[Tensor]]) -> "PendingCall":
        """Say what is received, as a function of what all members give."""
        self._result = result
        return self

    def wait(self) -> None:
        """Check that nobody has touched what is under way, and write what is received."""
        if self._result is None:
            return  # it was waited for before
        given = self._group.collect(self._call)
        for kind, now, before in (
            ("given", self._given, self.copies),
            ("received", self._received, self._untouched),
        ):
            for tensor, copy in zip(now, before, strict=True):
                assert _same(tensor, copy), f"what {self._method} was {kind} was changed under way"
        for into, result in zip(self._received, self._result(given), strict=True):
            assert into.shape == result.shape, (
                f"{self._method} brings {tuple(result.shape)} where {tuple(into.shape)} is expected"
            )
            assert into.dtype == result.dtype, f"{result.dtype} comes, not {into.dtype}"
            into.copy_(result)
        self._result = None


class Board:
    """Where threads put what they give, and find what the others gave."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.error: BaseException | None = None
        self._changed = threading.Condition()
        self._posted: dict[Call, dict[int, tuple[str, list[Tensor]]]] = {}
        self._collected: Counter[Call] = Counter()

    def post(self, call: Call, rank: int, method: str, given: list[Tensor]) -> None:
        with self._changed:
            self._posted.setdefault(call, {})[rank] = method, given
            self._changed.notify_all()

    def collect(self, call: Call, members: tuple[int, ...]) -> Given:
        """What all members have posted, in their order; the last one to ask clears it away."""
        with self._changed:
            self._wait_for(call, len(members))
            posted = self._posted[call]
            self._collected[call] += 1
            if self._collected[call] == len(members):
                del self._posted[call], self._collected[call]
        methods = {rank: posted[rank][0] for rank in members}
        assert len(set(methods.values())) == 1, (
            f"call {call.number} differs between ranks: {methods}"
        )
        return [posted[rank][1] for rank in members]

    def stop(self, error: BaseException) -> None:
        """Note the first error, and let all who wait know."""
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    def _wait_for(self, call: Call, members: int) -> None:
        def ready() -> bool:
            return self.error is not None or len(self._posted[call]) == members

        if not self._changed.wait_for(ready, max(self.deadline - time.monotonic(), 0)):
            here = {rank: method for rank, (method, _) in sorted(self._posted[call].items())}
            made = f"only these made call {call.number}: {here}"
            raise RankStoppedError(f"of ranks {call.members} {made}")
        if self.error is not None:
            raise RankStoppedError("another rank has failed") from self.error


class _Rank(threading.Thread):
    """A thread that runs one rank's work to its end."""

    def __init__(self, group: ThreadGroup, work: Callable[[ThreadGroup], Work[Any]]) -> None:
        super().__init__(daemon=True)
        self.group, self.result = group, list[Any]()
        self._work, self._gradients = work, torch.is_grad_enabled()

    def run(self) -> None:
        torch.set_grad_enabled(self._gradients)  # which each thread has for itself
        try:
            self.result.append(_finish(self._work(self.group)))
        except BaseException as error:
            self.group._board.stop(error)


def _finish(work: Work[Result]) -> Result:
    while True:
        try:
            pending = next(work)
        except StopIteration as end:
            result: Result = end.value
            return result
        pending.wait()


def _unknown(like: Tensor, size: TensorSize) -> Tensor:
    """A tensor whose values show that it was read too early."""
    kind = like.dtype
    value = torch.nan if kind.is_floating_point else torch.iinfo(kind).min
    return like.new_full(size, value)


def _fold(join: Callable[[Tensor, Tensor], Tensor], given: Given) -> Tensor:
    """The only tensors of all members joined, in the order of the members."""
    first, *others = (tensor for (tensor,) in given)
    for other in others:
        first = join(first, other)
    return first


def _same(one: Tensor, other: Tensor) -> bool:
    """Bit for bit, since nan differs from itself."""
    return torch.equal(*(t.reshape(-1).view(torch.uint8) for t in (one, other)))
