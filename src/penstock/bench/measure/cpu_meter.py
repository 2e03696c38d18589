"""CPU time of a thread, parted into that inside certain calls and the rest.

What a runtime itself costs is what is left of a step when the time inside the model, the loss, the
backward and the transfers is taken away. Two runtimes are compared fairly when the same calls are
wrapped in both, by the same code.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import thread_time_ns
from typing import Any, TypeVar
from unittest import mock

import torch
from torch import Tensor, nn

from penstock.run.comm.transport import Arrival, Transport
from penstock.run.program.calls import Post

Call = TypeVar("Call", bound=Callable[..., Any])


class CpuMeter:
    """Counts the CPU time that one thread spends inside wrapped calls, none inside another.

    What wrapping a call adds around it belongs to neither side. It is found once, with a call that
    does nothing, and taken off.
    """

    def __init__(self) -> None:
        self._toll = self.inside = 0
        self._toll = _toll_of(self)
        self.inside = 0
        """Nanoseconds inside wrapped calls and for wrapping them."""

    def wrap(self, call: Call) -> Call:
        def metered(*args: Any, **kwargs: Any) -> Any:
            start = thread_time_ns()
            result = call(*args, **kwargs)
            self.inside += thread_time_ns() - start + self._toll
            return result

        return metered  # type: ignore[return-value]

    def outside(self, work: Callable[[], Any]) -> int:
        """Nanoseconds of CPU that `work` needs outside the wrapped calls."""
        before, start = self.inside, thread_time_ns()
        work()
        return thread_time_ns() - start - (self.inside - before)


def _toll_of(meter: CpuMeter, calls: int = 2000) -> int:
    """Nanoseconds that wrapping adds outside a call: the least of several tries."""
    empty: Callable[[], None] = meter.wrap(lambda: None)

    def tries() -> None:
        for _ in range(calls):
            empty()

    return min(meter.outside(tries) for _ in range(5)) // calls


class MeteredModule(nn.Module):
    """A module whose calls are counted, with all that calling a module brings along."""

    def __init__(self, module: nn.Module, meter: CpuMeter) -> None:
        super().__init__()
        self.module = module
        self._call = meter.wrap(super().__call__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.module(x)
        return out


class MeteredTransport:
    """A transport whose posting and waiting are counted."""

    def __init__(self, transport: Transport, meter: CpuMeter) -> None:
        self.open = transport.open
        self.send = meter.wrap(transport.send)
        self.drain = meter.wrap(transport.drain)
        self.close = transport.close
        self._receive = transport.receive
        self._meter = meter
        self.receive = meter.wrap(self._metered_receive)

    def _metered_receive(self, post: Post, tensor: Tensor) -> Arrival:
        return _MeteredArrival(self._meter.wrap(self._receive(post, tensor).wait))


class _MeteredArrival:
    def __init__(self, wait: Callable[[], Any]) -> None:
        self.wait = wait


@contextmanager
def metered_backward(meter: CpuMeter) -> Iterator[None]:
    """Count autograd's entry, by whomever it is called."""
    with mock.patch.object(torch.autograd, "backward", meter.wrap(torch.autograd.backward)):
        yield
