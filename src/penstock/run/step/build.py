"""Puts a rank together: its mesh, its transport, its engine, for the devices that there are."""

import torch
from torch import distributed

from penstock.errors import RunError
from penstock.run.comm.mesh import Mesh, make_mesh
from penstock.run.comm.transport import Alone, Gloo, Transport
from penstock.run.comm.transport_cuda import PerChannel, Staged, channel_groups
from penstock.run.launch.environment import RankPlace
from penstock.run.program.plan import RunPlan
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW


def torch_device(wanted: str, place: RankPlace) -> torch.device:
    """The device of a rank; ranks of one machine share its GPUs in turn."""
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RunError(
            "run.device is cuda, but this machine has no CUDA device",
            hint='set run.device to "auto" or "cpu"',
        )
    return torch.device("cuda", place.local_rank % torch.cuda.device_count())


def build_engine(
    plan: RunPlan, replicas: int, adam: AdamW, device: torch.device
) -> tuple[Engine, Transport]:
    """The engine of this rank, with a transport that suits where its tensors are."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    ends = plan.homes[0], plan.homes[plan.schedule.shape.stages - 1]
    mesh = make_mesh(replicas, plan.schedule.shape.devices, ends=ends)
    transport = _transport(plan, mesh, device)
    return Engine(plan, mesh, transport, adam=adam, device=device), transport


def _transport(plan: RunPlan, mesh: Mesh, device: torch.device) -> Transport:
    if mesh.pipeline is None or mesh.devices == 1:
        return Alone()
    if device.type == "cpu":
        return Gloo(mesh.pipeline)
    if "nccl" not in str(distributed.get_backend_config(mesh.pipeline)):
        return Staged(mesh.pipeline)
    pipelines = [mesh.ranks_of(replica) for replica in range(mesh.replicas)]
    groups = channel_groups(pipelines, plan.program.channels, mesh.device, mesh.rank)
    return PerChannel(groups, mesh.device)
