"""Whole steps over cells of ranks with PyTorch's tensor parallelism inside its pipeline.

The plain model has its matrices and its vocabulary shared out by `parallelize_module`. Nothing else
of ours needs PyTorch's sharded tensors, whose import takes most of a second.
"""

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.style import ParallelStyle

from penstock.arch.layer_split import split_layers
from penstock.bench.measure.plain_model import plain_stage, summed_loss
from penstock.bench.measure.real import Timed, TrainingWork, measure_steps
from penstock.bench.measure.torch_pipeline import TorchPipeline
from penstock.run.process.rendezvous import Connection


def run_their_cells(
    connection: Connection, work: TrainingWork, name: str, tensor: int, steps: int
) -> Timed:
    """Steps of one of PyTorch's schedules with one stage on each device of `tensor` ranks."""
    devices, scale = connection.world // tensor, work.scale
    mesh = init_device_mesh("cpu", (devices, tensor), mesh_dim_names=("pipeline", "tensor"))
    device = mesh.get_local_rank("pipeline")
    stage = plain_stage(work.model, split_layers(work.model.layers, devices)[device], work.length)
    rival = TorchPipeline(
        name,
        {device: shared_out(stage, mesh["tensor"])},
        devices,
        microbatches=work.microbatches,
        loss=lambda logits, labels: summed_loss(logits, labels) * scale,
        group=mesh.get_group("pipeline"),
    )
    pairs = ((each.tokens, each.labels) for each in work.batch())
    tokens, labels = (torch.cat(parts) for parts in zip(*pairs))
    seconds, losses = measure_steps(lambda: rival.step(tokens, labels), steps)
    counted = losses if mesh.get_local_rank("tensor") == 0 else []
    return Timed(seconds, sum(loss.item() for loss in counted), [])


def shared_out(stage: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """A stage of the plain model with its matrices and its vocabulary shared out over a mesh."""
    by_outputs = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
    by_outputs += ["mlp.gate_proj", "mlp.up_proj"]
    by_inputs = ["self_attn.o_proj", "mlp.down_proj"]
    plan: dict[str, ParallelStyle] = {
        **{f"layers.*.{name}": ColwiseParallel() for name in by_outputs},
        **{f"layers.*.{name}": RowwiseParallel() for name in by_inputs},
        "embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "lm_head": ColwiseParallel(output_layouts=Replicate()),
    }
    present = {name for name, _ in stage.named_children()}
    chosen = {name: plan[name] for name in plan if name.partition(".")[0] in present}
    return parallelize_module(stage, mesh, chosen)
