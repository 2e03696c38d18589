"""Puts a rank together: its mesh, its transport, its engine, for the devices that there are."""

from collections.abc import Sequence

import torch
from torch import distributed

from penstock.errors import RunError
from penstock.run.comm.collective import connect_group
from penstock.run.comm.gloo import Gloo, Staged
from penstock.run.comm.grid import GRID_AXES
from penstock.run.comm.mesh import Mesh, make_mesh
from penstock.run.comm.nccl import Nccl
from penstock.run.comm.transport import Alone, Transport
from penstock.run.process.back_end import cuda_device
from penstock.run.process.environment import RankPlace
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW, NoUpdate
from penstock.run.step.shardings import sharding_named


def torch_device(wanted: str, place: RankPlace) -> torch.device:
    """The device of a rank, which is the one that its communicators are bound to."""
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RunError(
            "run.device is cuda, but this machine has no CUDA device",
            hint='set run.device to "auto" or "cpu"',
        )
    return cuda_device(place)


def build_engine(
    plan: StepPlan,
    replicas: int,
    adam: AdamW | NoUpdate,
    device: torch.device,
    order: Sequence[str] = GRID_AXES,
    *,
    shard: str = "none",
    shard_ranks: int = 0,
) -> Engine:
    """The engine of this rank, with a transport that suits where its tensors are; `order` has the
    axes of the mesh from the slowest to the fastest over ranks, `shard` names what ranks that hold
    the same stage share (run/step/sharding.py), all of them or groups of `shard_ranks`."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    mesh = make_mesh(replicas, plan.layout.devices, plan.layout.cell, order)
    return engine_on(mesh, plan, adam, device, shard=shard, shard_ranks=shard_ranks)


def engine_on(
    mesh: Mesh,
    plan: StepPlan,
    adam: AdamW | NoUpdate,
    device: torch.device,
    *,
    shard: str = "none",
    shard_ranks: int = 0,
) -> Engine:
    """The engine of this rank on a mesh that there is already, whose groups it connects."""
    sharding = sharding_named(shard, shard_ranks)
    for group in sharding.groups(mesh):
        if back_end_of(mesh, device) == "nccl":
            connect_group(group, device)
    transport = transport_for(mesh, device)
    return Engine(plan, mesh, transport, adam=adam, device=device, sharding=sharding)


def back_end_of(mesh: Mesh, device: torch.device) -> str:
    """What moves tensors between ranks: nccl, gloo, or gloo by way of the host; else nothing."""
    if mesh.world is None:
        return ""
    if device.type == "cpu":
        return "gloo"
    return "nccl" if "nccl" in str(distributed.get_backend_config(mesh.world)) else "host"


def transport_for(mesh: Mesh, device: torch.device) -> Transport:
    """Gloo for host tensors; NCCL for GPUs, or the way over the host where there is none."""
    if mesh.pipeline is None:
        return Alone()
    if device.type == "cpu":
        return Gloo(mesh.pipeline)
    if "nccl" not in str(distributed.get_backend_config(mesh.pipeline)):
        return Staged(mesh.pipeline)
    return Nccl(mesh, device)
