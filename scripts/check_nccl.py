"""Trains over NCCL and in one process, and compares the losses.

    python scripts/check_nccl.py --ranks 2 4 --steps 20

Every schedule is trained twice: as it is, and with a synchronisation of the device before and after
every call, which no transfer may wait for. Ranks may share a GPU where NCCL allows it (2.30 and
newer, with NCCL_MULTI_RANK_GPU_ENABLE=1).
"""

import argparse
import json
import multiprocessing
import os
import socket
import time
from dataclasses import replace
from threading import Thread
from typing import Any

import torch
from torch import distributed

from penstock.arch.config import ModelConfig
from penstock.core.schedule import Schedule
from penstock.data.batch import Microbatch
from penstock.plan.slices import even
from penstock.run.process.store import PATIENCE
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import build_engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin
from penstock.schedules import build
from trial_jobs import Synchronising

MODEL = ModelConfig(8, 256, 512, 8, 4, 32, 512)
MICROBATCHES, LENGTH = 8, 256
SLICES = {"1f1b": None, "seq1f1b": 4, "zb-v": None, "dualpipev": None}
"""Schedules that are trained, and the slices that they cut a sequence into."""
BACK_END = "cpu:gloo,cuda:nccl"


def plan_of(schedule: Schedule, dtype: torch.dtype, tied: bool) -> StepPlan:
    lengths = tuple(tuple(even(LENGTH, count)) for count in schedule.shape.slices)
    model = replace(MODEL, element_bytes=dtype.itemsize, tied=tied)
    return StepPlan(Layout.of(model, schedule, LENGTH, dtype=dtype), schedule, lengths)


def batches(step: int) -> list[Microbatch]:
    """The same words in every process; the next one is likely to follow."""
    stream = torch.Generator().manual_seed(step)
    found = []
    for _ in range(MICROBATCHES):
        first = torch.randint(0, MODEL.vocabulary, (1, 1), generator=stream)
        words = (first + torch.arange(LENGTH + 1)) % MODEL.vocabulary
        found.append(Microbatch(words[:, :-1], words[:, 1:], ((0,),)))
    return found


def train(schedule: Schedule, arguments: argparse.Namespace, brutal: bool) -> list[float]:
    """The losses of some steps on this rank."""
    torch.backends.cuda.matmul.allow_tf32 = False
    device = (
        torch.device(arguments.device, 0) if arguments.device == "cuda" else torch.device("cpu")
    )
    plan = plan_of(schedule, getattr(torch, arguments.dtype), arguments.tied)
    world = distributed.get_world_size() if distributed.is_initialized() else 1
    engine = build_engine(plan, world // schedule.shape.devices, AdamW(), device)
    begin(engine, 0)
    if brutal:
        engine.executor.observer = Synchronising()
    share = slice(
        engine.mesh.replica * MICROBATCHES // engine.mesh.replicas,
        (engine.mesh.replica + 1) * MICROBATCHES // engine.mesh.replicas,
    )
    losses = [engine.step(batches(step)[share], 1e-3).loss for step in range(arguments.steps)]
    engine.close()
    return losses


def leave_with_parent() -> None:
    """A rank may wait in a transfer for a partner that waits as well."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def rank_main(
    rank: int, ranks: int, port: int, name: str, arguments: Any, brutal: bool, found: Any
) -> None:
    Thread(target=leave_with_parent, daemon=True).start()
    if arguments.device == "cuda":
        torch.cuda.set_device(0)
    distributed.init_process_group(
        BACK_END if arguments.device == "cuda" else "gloo",
        init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks, timeout=PATIENCE,
    )  # fmt: skip
    devices = ranks // arguments.replicas
    share = MICROBATCHES // arguments.replicas
    schedule = build(name, devices=devices, microbatches=share, slices=SLICES[name])
    losses = train(schedule, arguments, brutal)
    if rank == 0:
        found.put(losses)
    distributed.barrier()
    distributed.destroy_process_group()


def over_nccl(name: str, ranks: int, arguments: Any, brutal: bool) -> list[float]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = multiprocessing.get_context("spawn").SimpleQueue()
    job = (ranks, port, name, arguments, brutal, found)
    context = multiprocessing.get_context("spawn")
    members = [context.Process(target=rank_main, args=(rank, *job)) for rank in range(ranks)]
    for member in members:
        member.start()
    for member in members:
        member.join()
    losses: list[float] = found.get()
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--schedules", nargs="+", default=SLICES, choices=list(SLICES))
    arguments = parser.parse_args()
    for name in arguments.schedules:
        sliced = "seq1f1b" if SLICES[name] else "1f1b"
        alone = build(sliced, devices=1, microbatches=MICROBATCHES, slices=SLICES[name])
        expected = train(alone, arguments, brutal=False)
        for ranks in arguments.ranks:
            for brutal in (False, True):
                start = time.perf_counter()
                losses = over_nccl(name, ranks, arguments, brutal)
                worst = max(abs(a - b) / abs(b) for a, b in zip(losses, expected))
                row = {
                    "schedule": name, "ranks": ranks, "replicas": arguments.replicas,
                    "synchronised": brutal, "steps": len(losses), "first": losses[0],
                    "last": losses[-1], "worst": worst, "seconds": time.perf_counter() - start,
                }  # fmt: skip
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
