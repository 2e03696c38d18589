"""How many bytes of tensors are alive: what memory predictions are held against.

On a GPU the allocator counts. On the host nobody does, so while a `LiveBytes` is in force every
storage that an operation makes is counted until it is freed. That costs some microseconds for each
operation: it is for a step that is looked at, not for all.
"""

import sys
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from penstock.core.ops import Op
from penstock.run.execute.observer import Quiet
from penstock.run.process.environment import read_place
from penstock.run.process.machine import this_machine
from penstock.run.program.calls import Call


class Sample(NamedTuple):
    """Memory around one op, in bytes above what was there before the step."""

    before: int
    peak: int
    """The most while the op ran."""
    after: int


class ByteMeter(Protocol):
    """Counts bytes; `peak` is the most since the last `reset`."""

    @property
    def level(self) -> int: ...

    @property
    def peak(self) -> int: ...

    def reset(self) -> None: ...


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts host storages from the operation that makes them until they are freed."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; told so, PyTorch does not load its compiler for seconds."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._level = 0
        self._freed: deque[int] = deque()
        """Sizes that are still to be subtracted: a transport's thread may be the one that frees."""
        self._known: dict[int, weakref.ref[Any]] = {}

    @property
    def level(self) -> int:
        while self._freed:
            self._level -= self._freed.popleft()
        return self._level

    def reset(self) -> None:
        self.peak = self.level

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf.untyped_storage())
        return out

    def _count(self, storage: Any) -> None:
        """Storages that were there before are met again as results of in-place operations and
        views; `ignore` has named them."""
        key = storage._cdata
        if key in self._known:
            return
        size = storage.nbytes()
        self._level = self.level + size
        self.peak = max(self.peak, self._level)
        self._known[key] = weakref.ref(storage, partial(self._forget, key, size))

    def _forget(self, key: int, size: int, _: Any) -> None:
        del self._known[key]
        self._freed.append(size)

    def ignore(self, *tensors: torch.Tensor) -> None:
        """Do not count storages that were there before."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._known[storage._cdata] = weakref.ref(storage, partial(self._leave, storage._cdata))

    def _leave(self, key: int, _: Any) -> None:
        self._known.pop(key, None)


class CudaBytes:
    """What the allocator of the current GPU has given out."""

    def __init__(self) -> None:
        self._base = torch.cuda.memory_allocated()

    @property
    def level(self) -> int:
        return torch.cuda.memory_allocated() - self._base

    @property
    def peak(self) -> int:
        return torch.cuda.max_memory_allocated() - self._base

    def reset(self) -> None:
        torch.cuda.reset_peak_memory_stats()


class MemoryRecorder(Quiet):
    """An observer that reads a meter around every op."""

    def __init__(self, meter: ByteMeter) -> None:
        self.meter = meter
        self.samples: dict[Op, Sample] = {}
        self._before = 0

    def runs(self, call: Call) -> None:
        self.meter.reset()
        self._before = self.meter.level

    def ran(self, call: Call) -> None:
        self.samples[call.op] = Sample(self._before, self.meter.peak, self.meter.level)


def free_bytes(device: torch.device) -> int:
    """What a rank may still take: its share of a GPU, or of the memory of this machine."""
    ranks = read_place().local_world
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(device)[0] // -(-ranks // torch.cuda.device_count())
    free = this_machine().free
    return sys.maxsize if free is None else free // ranks


@contextmanager
def record_memory(*existing: torch.Tensor) -> Iterator[MemoryRecorder]:
    """A recorder for the device of the tensors that are there already and are not to be counted."""
    if existing and existing[0].is_cuda:
        yield MemoryRecorder(CudaBytes())
        return
    with LiveBytes() as meter:
        meter.ignore(*existing)
        yield MemoryRecorder(meter)
