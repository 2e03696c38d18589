"""Steps whose activations wait on the host, against the same steps without: time, memory, and what
the way to the host gives.

One device has one sequence in slices, all of them forward and then all back. While a slice goes
forward the one before it is copied out, so of each slice as much is moved as its time allows: what
the way to the host gives in the time of the next forward, and back in that of the backward before
it. Where that rule is kept, a step should take no longer than without.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.bench.measure.gpu import RATE, fill
from penstock.bench.measure.step_clock import StepTimes, give_back, seconds_of, time_steps
from penstock.core.ops import Op
from penstock.cost.workload import Workload
from penstock.data.batch import Microbatch
from penstock.plan.memory import footprints
from penstock.plan.slices import align, equal_flops_of_model
from penstock.run.host.pool import HostPool
from penstock.run.process.machine import this_machine
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import build_engine
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.outcome import Outcome
from penstock.schedules import build
from penstock.transform import recompute_all_but_last_slices

SHARE_GRAIN = 64
"""Shares are multiples of one part in so many, rounded down."""


@dataclass(frozen=True)
class OffloadCase:
    """A model and the length of its only sequence."""

    schedule: str
    model: str
    sizes: ModelConfig
    tokens: int
    slices: int
    dtype: str = "bfloat16"
    headroom: float = 0.9
    """Share of what the way to the host gives alone that a step counts on."""

    @property
    def config(self) -> ModelConfig:
        return replace(self.sizes, element_bytes=getattr(torch, self.dtype).itemsize)

    @property
    def lengths(self) -> tuple[int, ...]:
        if self.tokens < 512 * self.slices:
            return tuple(equal_flops_of_model(self.config, self.tokens, self.slices))
        return align(equal_flops_of_model(self.config, self.tokens, self.slices))

    def plan(self, shares: Sequence[Fraction], recomputed: int = 0) -> StepPlan:
        """A step that moves these shares of its slices and computes the first ones again."""
        options = {"ratios": ",".join(map(str, shares))}
        schedule = build(
            self.schedule, devices=1, microbatches=1, slices=self.slices, options=options
        )
        if recomputed:
            schedule = recompute_all_but_last_slices(schedule, self.slices - recomputed)
        dtype = getattr(torch, self.dtype)
        layout = Layout.of(self.config, schedule, self.tokens, dtype=dtype)
        return StepPlan(layout, schedule, (self.lengths,))

    def batch(self) -> list[Microbatch]:
        """Random tokens: nothing that is measured depends on what they are."""
        stream = torch.Generator().manual_seed(0)
        words = torch.randint(0, self.sizes.vocabulary, (1, self.tokens + 1), generator=stream)
        return [Microbatch(words[:, :-1], words[:, 1:], ((0,),))]

    def slice_bytes(self) -> list[int]:
        """What each slice saves, keys and values apart."""
        plan = self.plan([Fraction(0)] * self.slices)
        held = _workload(plan).bytes(plan.schedule, "act")
        rows = (plan.schedule.table.row_of(Op("F", 0, 0, s)) for s in range(self.slices))
        return [int(held[row]) for row in rows]


class Bandwidth(NamedTuple):
    """Bytes per second between a device and pinned memory of the host."""

    out: float
    back: float


def _workload(plan: StepPlan) -> Workload:
    return Workload(plan.layout.model, plan.lengths, tuple(map(len, plan.layout.split)))


def bandwidth(device: torch.device, size: int, times: int = 5) -> Bandwidth:
    """Of copies of so many bytes in each direction, one way at a time."""
    pool = HostPool(device)
    pool.grow(size)
    host = [pool.bytes_at(run) for run in pool.take(size)]
    here = [torch.empty(len(each), dtype=torch.uint8, device=device) for each in host]
    moved = sum(len(each) for each in host)
    out, back = (partial(_copy, *ends) for ends in ((host, here), (here, host)))
    each_way = ([seconds_of(copy, device) for _ in range(times)] for copy in (out, back))
    return Bandwidth(*(moved / median(seconds) for seconds in each_way))


def _copy(to: Sequence[Tensor], source: Sequence[Tensor]) -> None:
    for one, other in zip(to, source):
        one.copy_(other, non_blocking=True)


@contextmanager
def engine_for(plan: StepPlan, device: torch.device) -> Iterator[Engine]:
    """An engine with some weights; its memory is free again at the end, whatever happened."""
    engine = build_engine(plan, 1, AdamW(), device)
    try:
        fill(engine)
        yield engine
    finally:
        engine.close()
        engine.release()
        give_back(device)


def hidden_shares(
    case: OffloadCase, seconds: dict[Op, float], ways: Bandwidth
) -> tuple[Fraction, ...]:
    """The share of each slice whose copies hide; the last slice goes back at once and stays."""
    shares = []
    for slice, size in enumerate(case.slice_bytes()[:-1]):
        forward = seconds[Op("F", 0, 0, slice + 1)] * ways.out
        backward = seconds[Op("B", 0, 0, slice + 1)] * ways.back
        fits = case.headroom * min(forward, backward) / size
        shares.append(Fraction(int(min(fits, 1.0) * SHARE_GRAIN), SHARE_GRAIN))
    return (*shares, Fraction(0))


def offload_row(
    case: OffloadCase, device: torch.device, steps: int, first: int, size: int
) -> dict[str, Any]:
    """Steps without and with offload, each against its predicted memory."""
    ways = bandwidth(device, size)
    plain = case.plan([Fraction(0)] * case.slices)
    batch = case.batch()
    with engine_for(plain, device) as engine:
        without = time_steps(lambda: engine.step(batch, RATE), device, steps, first)
        seconds = _op_seconds(engine)
    shares = hidden_shares(case, seconds, ways)
    plan = case.plan(shares)
    with engine_for(plan, device) as engine:
        moved = time_steps(lambda: engine.step(batch, RATE), device, steps, first)
        pool = engine.host.pool
        host = {"host_bytes": pool.bytes, "host_most": pool.most, "host_late": pool.late}
    ratio = median(moved.seconds) / median(without.seconds)
    return {
        **_named(case),
        "bytes_out_per_second": ways.out,
        "bytes_back_per_second": ways.back,
        "shares": [str(share) for share in shares],
        "seconds": median(moved.seconds),
        "seconds_without": median(without.seconds),
        "ratio": ratio,
        **_memory(plan, moved, ""),
        **_memory(plain, without, "_without"),
        **host,
    }


def _op_seconds(engine: Engine) -> dict[Op, float]:
    """What each op of the last step took."""
    starts, ends = engine.executor.spans.nanoseconds()
    calls = engine.executor.spans.calls
    return {call.op: (end - at) * 1e-9 for call, at, end in zip(calls, starts, ends)}


def long_row(
    case: OffloadCase, device: torch.device, steps: int, host_share: float
) -> dict[str, Any]:
    """A sequence whose activations fit neither the device nor the host: the last slices wait on the
    host, as many as it has room for, and the first ones are computed again."""
    kept = _slices_for(case, _host_limit(host_share))
    shares = [Fraction(s >= case.slices - kept) for s in range(case.slices - 1)]
    plan = case.plan([*shares, Fraction(0)], case.slices - kept)
    batch, outcomes = case.batch(), list[Outcome]()
    with engine_for(plan, device) as engine:
        times = time_steps(lambda: outcomes.append(engine.step(batch, RATE)), device, steps, 0)
        pool = engine.host.pool
        host = {"host_bytes": pool.bytes, "host_most": pool.most, "host_late": pool.late}
    seconds = median(times.seconds)
    return {
        **_named(case),
        "offloaded_slices": kept - 1,
        "recomputed_slices": case.slices - kept,
        "seconds": seconds,
        "tokens_per_second": case.tokens / seconds,
        "losses": [outcome.loss for outcome in outcomes],
        **_memory(plan, times, ""),
        **host,
    }


def _host_limit(share: float) -> int:
    free = this_machine().free
    return int(share * free) if free is not None else 1 << 40


def _slices_for(case: OffloadCase, limit: int) -> int:
    """How many of the last slices are kept: all but the very last on the host, within a limit."""
    sizes, kept, held = case.slice_bytes(), 1, 0
    for size in reversed(sizes[:-1]):
        if held + size > limit:
            break
        kept, held = kept + 1, held + size
    return kept


def _memory(plan: StepPlan, times: StepTimes, tail: str) -> dict[str, Any]:
    predicted = footprints(plan.schedule, _workload(plan))[0].total
    measured = times.allocated
    error = abs(predicted - measured) / measured if measured else None
    return {
        f"predicted_bytes{tail}": predicted,
        f"measured_bytes{tail}": measured,
        f"memory_error{tail}": error,
    }


def _named(case: OffloadCase) -> dict[str, Any]:
    names = ("schedule", "model", "tokens", "slices", "dtype")
    return {name: getattr(case, name) for name in names}
