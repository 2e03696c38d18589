"""List scheduling: whenever a device is free, it starts the most urgent op that it can start.

An order is wanted for stages of any cost on any devices, within the memory of each device, and a
search wants thousands of them. Walk through time; a device that is free looks at the next forward,
input gradient and weight gradient of each of its stages and starts the most urgent one that is
ready and fits into its memory. Urgency is a key: each kind on each stage has an offset, each
further slice adds a period, and the least key goes first. Weight gradients have late keys, so
that they fill what would be idle, and release memory where a forward waits for it.

Two rules complete it:

- Patience. An op of a later key holds back where an op of an earlier key arrives within a share of
  its own time: a weight gradient that just began would keep the input gradient waiting.
- Reservation. Greedy admission can fill a device with young microbatches and leave no memory for
  the later stages of an old one; then nothing ever moves again. So a forward starts only if the
  memory still holds the other forwards of that microbatch, which are those of its later slices and
  those on all later stages of the device.

No deadlock. Let o be the oldest microbatch that is not done. Within a stage, microbatches go in
order, so a device admits younger ones only on stages that o has passed or is at; when the last one
of them was admitted, the memory of what o still needs there was free. Forwards of older ones used
some of it and gave it back when they were done. So o always fits; its gradients need no memory, and
weight gradients, which give it back, wait for nothing but their input gradients.

Source: AdaPtis, arXiv:2509.23722; the rules of priority are ours.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.kernel import kernel, part
from penstock.search.joint.pipeline import Order, Pipeline, Whole

Keys = NDArray[np.float64]
NEVER = 2**61


@dataclass(frozen=True, eq=False)
class Policy:
    """What makes an op urgent."""

    offset: Keys
    """Key of the first turn for each kind on each stage; the least goes first."""
    period: float
    """What each further turn adds to the key."""
    patience: float = 0.0
    """Share of its own time for which an op waits for a more urgent one."""


class Listed(NamedTuple):
    """An order, and the tick at which its last op ends."""

    order: Order
    makespan: int


def urgency(pipeline: Pipeline, *, lead: float, late: float, patience: float) -> Policy:
    """Keys that say when an op would run if no device were ever busy, shifted for two kinds.

    `lead` is by how many periods gradients go before forwards, `late` by how many weight gradients
    go behind; a period is the work of the busiest device for one slice.
    """
    period = pipeline.period
    offset = pipeline.earliest.copy()
    offset[1] -= lead * period
    offset[2:] += (late - lead) * period
    return Policy(offset, period, patience)


def list_schedule(pipeline: Pipeline, policy: Policy, below: int = NEVER) -> Listed | None:
    """The order of a policy.

    None where not even one microbatch fits into the memory, or where it takes `below` or longer.
    """
    p, columns = pipeline, np.empty((4, pipeline.ops), np.int64)
    makespan = _list_schedule.compiled(
        p.units, p.slices, p.device, p.time, p.held, p.stash, p.cap, p.hop,
        policy.offset, policy.period, policy.patience, *p.homes, *columns,
    )  # fmt: skip
    return Listed(_by_device(columns, p.devices), makespan) if 0 <= makespan < below else None


def _by_device(columns: Whole, devices: int) -> Order:
    kind, stage, turn, device = columns
    rows = np.argsort(device, kind="stable")
    start = np.searchsorted(device[rows], np.arange(devices + 1))
    return Order(kind[rows], stage[rows], turn[rows], start)


@kernel
def _list_schedule(
    units: Any, slices: Any, device: Any, time: Any, act: Any, stash: Any, cap: Any, hop: Any,
    offset: Any, period: Any, patience: Any, homes: Any, first: Any,
    out_kind: Any, out_stage: Any, out_turn: Any, out_device: Any,
) -> int:  # fmt: skip
    """Let the device that wakes first decide, until all ops are placed; -1 where none can."""
    kinds, stages = time.shape
    done = np.zeros((kinds, stages), np.int64)
    arrival = np.full((3, stages, units + 1), NEVER, np.int64)
    arrival[0, 0, :units] = 0
    free, wake, used = np.zeros(len(cap), np.int64), np.zeros(len(cap), np.int64), cap * 0
    row, makespan = 0, 0
    while row < len(out_kind):
        here = 0
        for other in range(1, len(wake)):
            if wake[other] < wake[here]:
                here = other
        now = wake[here]
        if now >= NEVER:
            return -1
        kind, stage, least, soon, soon_key = -1, -1, np.inf, NEVER, np.inf
        for place in range(first[here], first[here + 1]):
            own = homes[place]
            full = (
                used[here] + _wanted(homes[place : first[here + 1]], done, act, slices) > cap[here]
            )
            for code in range(kinds):
                ready = arrival[code, own, done[code, own]]
                if ready >= NEVER or (code == 0 and full):
                    continue
                key = offset[code, own] + done[code, own] * period
                if ready <= now and key < least:
                    kind, stage, least = code, own, key
                elif now < ready < soon:
                    soon, soon_key = ready, key
        patient = soon_key < least and soon < now + patience * time[kind, stage]
        if kind < 0 or patient:
            wake[here] = soon
            continue
        turn = done[kind, stage]
        out_kind[row], out_stage[row], out_turn[row], out_device[row] = kind, stage, turn, here
        row += 1
        done[kind, stage] += 1
        end = now + time[kind, stage]
        free[here] = wake[here] = end
        makespan = max(makespan, end)
        used[here] += act[stage] * (kind == 0) - (act[stage] - stash[stage]) * (kind == 1)
        used[here] -= stash[stage] * (kind == 2)
        arrival[2, stage, turn] = end if kind == 1 else NEVER
        if kind == 0 and stage == stages - 1:
            if (turn + 1) % slices == 0:  # with its last slice a sequence turns round
                arrival[1, stage, turn + 1 - slices : turn + 1] = end
        elif kind == 0 or (kind == 1 and stage > 0):
            target = stage + 1 - 2 * kind
            there = device[target]
            arrival[kind, target, turn] = end + hop * (there != here)
            wake[there] = min(wake[there], max(free[there], arrival[kind, target, turn]))
    return makespan


@part
def _wanted(stages: Any, done: Any, act: Any, slices: Any) -> Any:
    """Memory for all that is left of the forwards of the microbatch that the first stage is at."""
    end, total = (done[0, stages[0]] // slices + 1) * slices, 0
    for stage in stages:
        total += act[stage] * (end - max(done[0, stage], end - slices))
    return total
