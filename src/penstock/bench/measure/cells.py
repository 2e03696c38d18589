"""Whole steps over cells of ranks: ours, and PyTorch's tensor parallelism inside its pipeline.

Both sides run in the same processes with the same weights and tokens, without the optimizer. Ours
is the engine that trains, with the sum over ranks that hold the same weights; PyTorch's is the
plain model, its matrices and its vocabulary shared out by `parallelize_module`.
"""

from contextlib import closing

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

from penstock.arch.cell_shape import CellShape
from penstock.arch.layer_split import split_layers
from penstock.bench.measure.plain_model import plain_stage, summed_loss
from penstock.bench.measure.real import HOST, Timed, TrainingWork, measure_steps
from penstock.bench.measure.torch_pipeline import TorchPipeline
from penstock.core.schedule import Schedule
from penstock.run.process.rendezvous import Connection
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import build_engine
from penstock.run.step.optimizer import NoUpdate
from penstock.run.step.state import begin


def run_our_cells(
    connection: Connection,
    work: TrainingWork,
    schedule: Schedule,
    lengths: tuple[int, ...],
    cell: CellShape,
    steps: int,
) -> Timed:
    """Steps of one of our schedules, each device a cell; microbatches are cut to these lengths."""
    layout = Layout.of(work.model, schedule, work.length, cell=cell)
    plan, batch = StepPlan(layout, schedule, (lengths,) * work.microbatches), work.batch()
    with closing(build_engine(plan, 1, NoUpdate(), HOST)) as engine:
        begin(engine, seed=0)
        seconds, outcome = measure_steps(lambda: engine.gradients(batch), steps)
    return Timed(seconds, outcome.loss if connection.rank == 0 else 0.0, [])


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
