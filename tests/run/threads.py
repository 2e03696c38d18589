"""A pipeline in one process: a thread for each device, and a post office between them.

Messages of one channel arrive in the order they were sent; which channel is served next, and how
late, is for each office to decide. What is sent is read when it is delivered, and what will be
received is poisoned, so that an op that is too early, or a tensor that is used again too early,
makes the result no number.
"""

import random
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from penstock.core.buffers import Buf
from penstock.core.ops import Op
from penstock.core.program import Channel
from penstock.data.batch import Microbatch
from penstock.lower import lower_for_running
from penstock.model.stages.weights import Weights
from penstock.run.execute.executor import Executor, Subjects, by_home
from penstock.run.execute.handlers.offload import HostRoom
from penstock.run.host.tier import HostTier
from penstock.run.program.calls import Join, Post
from penstock.run.program.layout import Layout
from penstock.run.program.pieces import cut_batch
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.helping import helping_of
from penstock.run.step.shard_sums import ShardSums
from penstock.run.step.stages import (
    boundary_of,
    empty_weights,
    home_views,
    stage_of,
    weightless_stages,
)
from penstock.verify.compare import HeldGradient
from penstock.verify.material import parameters_of

CPU = torch.device("cpu")
PATIENCE = 60.0
"""Seconds after which a message that has not come is lost."""


class Message(NamedTuple):
    """One end of a transfer."""

    tag: int
    tensor: Tensor


class Office:
    """Delivers between devices; `choose` picks among the channels that have something to do."""

    def __init__(self, choose: Callable[[Sequence[Channel]], Channel]) -> None:
        self._choose = choose
        self._changed = threading.Condition()
        self._sent: dict[Channel, deque[Message]] = {}
        self._awaited: dict[Channel, deque[Message]] = {}
        self._arrived: set[int] = set()
        self.outstanding: Counter[Channel] = Counter()
        self.most: Counter[Channel] = Counter()
        """The most receives that were posted and not yet waited for, by channel."""

    @property
    def waiting(self) -> bool:
        """Whether something was sent or awaited and did not meet its other end."""
        return any((*self._sent.values(), *self._awaited.values()))

    def send(self, channel: Channel, message: Message) -> None:
        with self._changed:
            self._sent.setdefault(channel, deque()).append(message)
            self._changed.notify_all()

    def receive(self, channel: Channel, message: Message) -> None:
        message.tensor.fill_(float("nan"))
        with self._changed:
            self._awaited.setdefault(channel, deque()).append(message)
            self.outstanding[channel] += 1
            self.most[channel] = max(self.most[channel], self.outstanding[channel])
            self._changed.notify_all()

    def wait(self, channel: Channel, tag: int) -> None:
        """Serve channels until the message is there."""
        self._serve_until(lambda: tag in self._arrived, f"transfer {tag} on {channel}")
        self.outstanding[channel] -= 1

    def drain(self, source: int) -> None:
        """Serve channels until all that a device has sent has left."""
        mine = [channel for channel in self._sent if channel.source == source]
        self._serve_until(lambda: not any(map(self._sent.get, mine)), f"all sent by {source}")

    def _serve_until(self, done: Callable[[], bool], what: str) -> None:
        with self._changed:
            while not done():
                if not self._deliver() and not self._changed.wait(PATIENCE):
                    raise TimeoutError(what)

    def _deliver(self) -> bool:
        """Deliver one message; whether there was one."""
        ready = [c for c, waiting in self._awaited.items() if waiting and self._sent.get(c)]
        if not ready:
            return False
        channel = self._choose(sorted(ready))
        sent, awaited = self._sent[channel].popleft(), self._awaited[channel].popleft()
        assert sent.tag == awaited.tag, f"{channel}: {sent.tag} was sent, {awaited.tag} awaited"
        with _disable_current_modes():  # what is delivered is no doing of the thread that serves
            awaited.tensor.copy_(sent.tensor)
        self._arrived.add(sent.tag)
        self._changed.notify_all()
        return True


class Counterfoil(NamedTuple):
    """What a device holds for a transfer that it waits for."""

    office: Office
    channel: Channel
    tag: int

    def wait(self) -> None:
        self.office.wait(self.channel, self.tag)


class Mail:
    """The transport of one device."""

    def __init__(self, office: Office, device: int) -> None:
        self._office, self._device = office, device

    def open(self, channels: Iterable[Channel]) -> None:
        return None

    def send(self, post: Post, tensor: Tensor) -> None:
        channel = Channel(self._device, post.peer, post.buf.name)
        self._office.send(channel, Message(post.tag, tensor))

    def receive(self, post: Post, tensor: Tensor) -> Counterfoil:
        channel = Channel(post.peer, self._device, post.buf.name)
        self._office.receive(channel, Message(post.tag, tensor))
        return Counterfoil(self._office, channel, post.tag)

    def drain(self) -> None:
        self._office.drain(self._device)

    def close(self) -> None:
        return None


def in_order() -> Office:
    """The first channel that can be served is."""
    return Office(lambda ready: ready[0])


def shuffled(seed: int) -> Office:
    """Any channel may be next."""
    return Office(random.Random(seed).choice)


@contextmanager
def _quick_turns() -> Iterator[None]:
    """Ops here take microseconds: a thread that waits for its turn should not wait milliseconds."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


class Meeting:
    """Where the threads of all devices put what belongs together."""

    def __init__(self, devices: int) -> None:
        self._devices, self._changed = devices, threading.Condition()
        self._brought: dict[Buf, dict[int, Tensor]] = {}
        self._taken: Counter[Buf] = Counter()

    def gather(self, device: int, buf: Buf, tensor: Tensor) -> Tensor:
        """The tensors of all devices along a new first axis; nothing of it stays here."""
        with self._changed:
            brought = self._brought.setdefault(buf, {})
            brought[device] = tensor
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: len(brought) == self._devices, PATIENCE):
                raise TimeoutError(f"{buf} was brought by {sorted(brought)} alone")
            found = torch.stack([brought[each] for each in range(self._devices)])
            self._taken[buf] += 1
            if self._taken[buf] == self._devices:
                del self._brought[buf], self._taken[buf]
            return found


class Seat(NamedTuple):
    """One device's part of a collective."""

    meeting: Meeting
    device: int
    buf: Buf

    def add_up(self, tensor: Tensor) -> None:
        tensor.copy_(self.gather(tensor.clone()).sum(0))

    def gather(self, tensor: Tensor) -> Tensor:
        return self.meeting.gather(self.device, self.buf, tensor)


class Rig:
    """The devices of a plan with the weights of `verify`, each with its stages and executor."""

    def __init__(self, plan: StepPlan) -> None:
        self.plan, self.layout = plan, plan.layout
        self.program = lower_for_running(plan.schedule)
        values = parameters_of(self.layout.model, self.layout.main)
        homes = [n for d in range(self.layout.devices) for n in self.layout.stages_of(d)]
        self._meeting = Meeting(self.layout.devices)
        self.stages = {stage: stage_of(self.layout, stage, CPU) for stage in homes}
        self.weights = {stage: _weights(self.layout, stage, values) for stage in homes}
        self.executors = [self._executor(device) for device in range(self.layout.devices)]

    def _executor(self, device: int) -> Executor:
        mine = {number: self.stages[number] for number in self.layout.stages_of(device)}
        shares = dict(self.plan.schedule.shares)
        executor = Executor(
            self.program,
            device,
            partial(
                _subject,
                by_home({**weightless_stages(self.layout, CPU), **mine}, self.layout.stages),
                HostTier(CPU),
                shares,
            ),
            transport=Mail(in_order(), device),
            boundary=boundary_of(self.layout, CPU),
            homes=home_views(mine, self.weights),
            sums=lambda join, parts: self._sums(device, join).of(parts[0]),
        )
        executor.helper = helping_of(self.layout, CPU)
        return executor

    def _sums(self, device: int, join: Join) -> ShardSums:
        return ShardSums(Seat(self._meeting, device, join.buf), CPU)

    def step(self, batch: Sequence[Microbatch], office: Office) -> float:
        """The mean loss of a batch; stages have added its gradients."""
        return self._all(batch, office, Executor.step)

    def evaluate(self, batch: Sequence[Microbatch], office: Office) -> float:
        return self._all(batch, office, Executor.evaluate)

    def _all(
        self,
        batch: Sequence[Microbatch],
        office: Office,
        run: Callable[[Executor, Sequence[object]], list[Tensor]],
    ) -> float:
        labels = sum(microbatch.valid for microbatch in batch)
        pieces = cut_batch(self.plan, batch, scale=1 / labels, device=CPU)

        def work(device: int) -> float:
            executor = self.executors[device]
            executor.take(Mail(office, device))
            return float(sum(run(executor, pieces), torch.zeros((), dtype=torch.float64)))

        with ThreadPoolExecutor(len(self.executors)) as threads, _quick_turns():
            return sum(threads.map(work, range(len(self.executors)))) / labels

    def zero(self) -> None:
        for weights in self.weights.values():
            weights.grad.zero_()

    def held(self) -> list[HeldGradient]:
        """Gradients, as the verifier compares them."""
        return [
            HeldGradient(name, grad, self.weights[number].layout.parts[name].index)
            for (number, name), grad in self.gradients().items()
        ]

    def gradients(self) -> dict[tuple[int, str], Tensor]:
        """By stage and name, as they are now."""
        return {
            (number, name): grad.clone()
            for number, weights in self.weights.items()
            for name, grad in weights.named(weights.grad).items()
        }


def _subject(stages: Subjects, tier: HostTier, shares: Mapping[Op, Fraction], op: Op) -> object:
    """What an op works with: a stage, or the room on the host."""
    return HostRoom.of(tier, shares, op) if op.kind in "OL" else stages(op)


def _weights(layout: Layout, number: int, values: dict[str, Tensor]) -> Weights:
    weights = empty_weights(layout, number, CPU)
    for name, main in weights.named(weights.main).items():
        main.copy_(values[name][weights.layout.parts[name].index])
    weights.publish()
    return weights
