"""Copies between the host and a device, and collectives among ranks."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import distributed

from penstock.bench.measure.step_clock import synchronise
from penstock.profiling.measure.timing import kernel_seconds
from penstock.profiling.modules import MeasuredRow
from penstock.run.comm.collective import add_up, make_group, over_nccl
from penstock.run.process.rendezvous import Connection
from penstock.run.step.build import torch_device

COPIED = (1 << 16, 1 << 20, 1 << 24, 1 << 28)
"""Bytes of a copy."""
MESSAGES = tuple(1 << power for power in range(10, 25, 2))
"""Bytes of a collective."""
COLLECTIVE_ROUNDS = 5


def copy_rows(device: torch.device) -> Iterator[MeasuredRow]:
    """Copies both ways; on the host alone from one place to another."""
    pinned = device.type == "cuda"
    for size in COPIED if pinned else COPIED[:3]:
        here = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        there = torch.zeros(size, dtype=torch.uint8, device=device)
        for name, target, source in (("to device", there, here), ("to host", here, there)):
            seconds = kernel_seconds(partial(target.copy_, source, non_blocking=True), device)
            rate = size / seconds
            yield {"way": name, "bytes": size, "seconds": seconds, "bytes_per_second": rate}


def collective_rows(
    connection: Connection, wanted: str, sizes: Sequence[int] = MESSAGES
) -> list[MeasuredRow]:
    """Sums, gathers and messages in groups of 2, 4, ... ranks, as this one sees it. What the ranks
    cannot send from their GPUs is sent from the host."""
    device, found = torch_device(wanted, connection.place), list[MeasuredRow]()
    if not over_nccl(distributed.group.WORLD, device):
        device = torch.device("cpu")
    ranks = 2
    while ranks <= connection.world:
        group = make_group([*range(ranks)])
        if connection.rank < ranks:
            for size in sizes:
                found += _rows(group, ranks, size, device)
        distributed.barrier()
        ranks *= 2
    return found


def _rows(group: Any, ranks: int, size: int, device: torch.device) -> Iterator[MeasuredRow]:
    """One size in all ways; a rank of a ring sends 2 (n - 1) / n of a sum, and a gather half."""
    whole = torch.zeros(size // 4, device=device)
    part = torch.zeros(max(1, size // 4 // ranks), device=device)
    parts = [torch.empty_like(part) for _ in range(ranks)]
    ways: dict[str, tuple[Callable[[], object], float]] = {
        "sum": (lambda: add_up(whole, group), 2 * (ranks - 1) / ranks * size),
        "gather": (
            lambda: distributed.all_gather(parts, part, group=group),
            (ranks - 1) / ranks * size,
        ),
    }
    if ranks == 2:
        ways["message"] = (lambda: _there_and_back(whole, group), 2.0 * size)
    for name, (call, sent) in ways.items():
        seconds = _together(call, group, device)
        if name == "message":
            seconds, sent = seconds / 2, sent / 2
        yield {
            "name": name,
            "ranks": ranks,
            "bytes": size,
            "sent_bytes": sent,
            "seconds": seconds,
            "bytes_per_second": sent / seconds,
        }


def _there_and_back(whole: torch.Tensor, group: Any) -> None:
    """Two messages."""
    me = distributed.get_rank(group)
    for sender in (0, 1):
        if me == sender:
            distributed.send(whole, group_dst=1 - me, group=group)
        else:
            distributed.recv(whole, group_src=1 - me, group=group)


def _together(call: Callable[[], object], group: Any, device: torch.device) -> float:
    """Wall time of a call, the median of some; all members begin together."""
    found = []
    for _ in range(COLLECTIVE_ROUNDS + 1):
        distributed.barrier(group=group)
        start = perf_counter()
        call()
        synchronise(device)
        found.append(perf_counter() - start)
    return median(found[1:])
