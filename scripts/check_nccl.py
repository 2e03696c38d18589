"""Trains over NCCL and in one process, and compares the losses.

    python scripts/check_nccl.py --ranks 2 4 --steps 20

Every schedule is trained twice: as it is, and with a synchronisation of the device before and after
every call, which no transfer may wait for. Ranks may share a GPU where NCCL allows it (2.30 and
newer), which they are told on standard error.
"""

import argparse
import json
import time
from dataclasses import replace
from itertools import product

import torch

from penstock.arch.config import ModelConfig
from penstock.core.schedule import Schedule
from penstock.data.batch import Microbatch
from penstock.plan.slices import even
from penstock.run.launch.worker_pool import Crew
from penstock.run.process.rendezvous import Connection
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import build_engine, torch_device
from penstock.run.step.optimizer import AdamW
from penstock.run.step.shardings import SHARDINGS
from penstock.run.step.state import begin
from penstock.schedules import build
from trial_jobs import Synchronising

MODEL = ModelConfig(8, 256, 512, 8, 4, 32, 512)
MICROBATCHES, LENGTH = 8, 256
SLICES = {"1f1b": None, "seq1f1b": 4, "zb-v": None, "dualpipev": None}
"""Schedules that are trained, and the slices that they cut a sequence into."""


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


def train(
    connection: Connection, schedule: Schedule, arguments: argparse.Namespace, brutal: bool
) -> list[float]:
    """The losses of some steps on this rank."""
    torch.backends.cuda.matmul.allow_tf32 = False
    device = torch_device(arguments.device, connection.place)
    plan = plan_of(schedule, getattr(torch, arguments.dtype), arguments.tied)
    replicas = connection.world // schedule.shape.devices
    engine = build_engine(plan, replicas, AdamW(), device, shard=arguments.shard)
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


def over_ranks(name: str, crew: Crew, arguments: argparse.Namespace, brutal: bool) -> list[float]:
    """The losses of a schedule over all ranks of a crew."""
    devices = crew.ranks // arguments.replicas
    share = MICROBATCHES // arguments.replicas
    schedule = build(name, devices=devices, microbatches=share, slices=SLICES[name])
    return crew.run(train, schedule, arguments, brutal)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--shard", default="none", choices=list(SHARDINGS))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--schedules", nargs="+", default=SLICES, choices=list(SLICES))
    arguments = parser.parse_args()
    on_gpu = arguments.device == "cuda"
    for name in arguments.schedules:
        sliced = "seq1f1b" if SLICES[name] else "1f1b"
        alone = build(sliced, devices=1, microbatches=MICROBATCHES, slices=SLICES[name])
        with Crew(1) as crew:
            (expected,) = crew.run(train, alone, arguments, brutal=False)
        for ranks, brutal in product(arguments.ranks, (False, True) if on_gpu else (False,)):
            with Crew(ranks, back_end="" if on_gpu else "gloo") as crew:
                start = time.perf_counter()
                losses = over_ranks(name, crew, arguments, brutal)
            worst = max(abs(a - b) / abs(b) for a, b in zip(losses, expected))
            row = {
                "schedule": name, "ranks": ranks, "replicas": arguments.replicas,
                "synchronised": brutal, "steps": len(losses), "first": losses[0],
                "last": losses[-1], "worst": worst, "seconds": time.perf_counter() - start,
            }  # fmt: skip
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    import check_nccl  # jobs of a crew are functions of a module that its ranks can import

    check_nccl.main()
