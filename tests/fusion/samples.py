"""Small models with runs of MLPs, their weights, and a run of MLPs in plain torch."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from penstock.arch.blocks import LayerBlock
from penstock.arch.config import ModelConfig
from penstock.arch.parameters import layer_prefix
from penstock.fusion.fused_layers import Apart, fuse_tensors_of
from penstock.fusion.fusion_plan import FusionPlan
from penstock.verify.material import parameters_of

Named = dict[str, Tensor]
EPSILON = 1e-2
GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


def run_model(widths: Sequence[int], **more: object) -> ModelConfig:
    """A layer with attention, a run of MLPs of these widths, and another layer with attention."""
    sizes = ModelConfig(len(widths) + 2, 12, 20, 4, 2, 6, 23, norm_epsilon=EPSILON, element_bytes=8)
    inside = (LayerBlock(width, attention=False) for width in widths)
    return replace(sizes, blocks=(LayerBlock(20), *inside, LayerBlock(20)), **more)  # type: ignore[arg-type]


def weights_of(model: ModelConfig) -> Named:
    return parameters_of(model, torch.float64)


def fuse(model: ModelConfig, plan: FusionPlan, tensors: Named) -> tuple[Named, Named]:
    """Tensors of the fused model, and what is kept apart."""
    found = [*fuse_tensors_of(model, plan, lambda names: {n: tensors[n] for n in names})]
    apart = {each.name: each.tensor for each in found if isinstance(each, Apart)}
    return dict(each for each in found if not isinstance(each, Apart)), apart


class PlainMlp:
    """One MLP of a run with its norm, as autograd sees it."""

    def __init__(self, tensors: Named, layer: int, activation: str) -> None:
        prefix = layer_prefix(layer)
        names = ("gate_proj", "up_proj", "down_proj")
        self.gate, self.up, self.down = (tensors[f"{prefix}mlp.{n}.weight"] for n in names)
        self.norm = tensors[f"{prefix}post_attention_layernorm.weight"]
        self.activation = GATES[activation]

    def __call__(self, x: Tensor, norm: Tensor | None = None) -> Tensor:
        scale = self.norm if norm is None else norm
        z = functional.rms_norm(x, (x.shape[-1],), scale, EPSILON)
        return (self.activation(z @ self.gate.T) * (z @ self.up.T)) @ self.down.T


def parallel_form(mlps: Sequence[PlainMlp], x: Tensor, norm: str) -> Tensor:
    """All MLPs of a run read the same input, with the norm of the last one or each with its own."""
    shared = mlps[-1].norm if norm == "last" else None
    return x + sum(mlp(x, shared) for mlp in mlps)  # type: ignore[return-value]


def sequential_form(mlps: Sequence[PlainMlp], x: Tensor) -> Tensor:
    for mlp in mlps:
        x = x + mlp(x)
    return x
