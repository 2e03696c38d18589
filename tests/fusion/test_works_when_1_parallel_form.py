"""FFN Fusion, "It works when" 1: the fused layer is the parallel form, forward and all gradients,
with and without tensor parallelism, of equal and unequal widths, with both norms, with SwiGLU and
GELU."""

from itertools import product

import pytest
import torch
from torch import Tensor

from fusion.layer_on_ranks import Ran, run_layer
from fusion.samples import Named, PlainMlp, fuse, parallel_form, run_model, weights_of
from loops import each
from penstock.arch.parameters import layer_prefix
from penstock.fusion.fused_layers import norm_name
from penstock.fusion.fusion_plan import FusionPlan, fused_model

pytestmark = pytest.mark.torch

EXACT = 1e-12
WIDTHS = ((8, 8, 8), (8, 5, 7))
CASES = [*product(WIDTHS, ("last", "own"), ("silu", "gelu_tanh"), (1, 2, 3))]


def close(found: Tensor, expected: Tensor) -> bool:
    return float((found - expected).abs().max()) <= EXACT * max(1.0, float(expected.abs().max()))


@each(("widths", "norm", "activation", "ranks"), CASES)
def test_a_fused_layer_is_the_parallel_form(
    widths: tuple[int, ...], norm: str, activation: str, ranks: int
) -> None:
    model = run_model(widths, activation=activation)
    plan = FusionPlan(fuse=(range(1, 1 + len(widths)),), norm=norm, multiple=4)  # type: ignore[arg-type]
    tensors = weights_of(model)
    fused, _ = fuse(model, plan, tensors)
    leaves = {name: value.clone().requires_grad_() for name, value in tensors.items()}
    mlps = [PlainMlp(leaves, layer, activation) for layer in plan.fuse[0]]
    x, dz = torch.randn(2, 9, 12, dtype=torch.float64).unbind()
    x.requires_grad_()
    right = parallel_form(mlps, x, norm)
    right.backward(dz)  # type: ignore[no-untyped-call]
    ran = run_layer(fused_model(model, plan).like(1), 1, fused, x.detach(), dz, ranks)
    assert close(ran.out, right.detach())
    assert x.grad is not None
    assert close(ran.dx, x.grad)
    _compare_gradients(ran, leaves, mlps, norm)


def _compare_gradients(ran: Ran, leaves: Named, mlps: list[PlainMlp], norm: str) -> None:
    """The gradient of the fused layer, cut into those of its parts."""
    prefix, start = layer_prefix(1), 0
    gate, up, down = (
        ran.gradients[f"{prefix}mlp.{name}.weight"]
        for name in ("gate_proj", "up_proj", "down_proj")
    )
    for mlp in mlps:
        own = slice(start, start + len(mlp.up))
        start = own.stop
        scale = mlp.norm.detach() if norm == "own" else 1.0
        for found, leaf in ((gate[own], mlp.gate), (up[own], mlp.up)):
            assert leaf.grad is not None
            assert close(found * scale, leaf.grad)
        assert mlp.down.grad is not None
        assert close(down[:, own], mlp.down.grad)
        if norm == "own":  # a scale that was multiplied into matrices has its gradient in theirs
            assert mlp.norm.grad is not None
            both = gate[own] * mlp.gate.detach() + up[own] * mlp.up.detach()
            assert close(both.sum(0), mlp.norm.grad)
    if norm == "last":
        assert mlps[-1].norm.grad is not None
        assert close(ran.gradients[f"{prefix}post_attention_layernorm.weight"], mlps[-1].norm.grad)


def test_norms_of_the_other_layers_are_not_used_with_the_last() -> None:
    model, plan = run_model((8, 5, 7)), FusionPlan(fuse=(range(1, 4),))
    tensors = weights_of(model)
    fused, apart = fuse(model, plan, tensors)
    assert fused[norm_name(model, 1)].equal(tensors[norm_name(model, 3)])
    assert [*apart] == [f"layers.1.parts.{member}.norm" for member in range(3)]
