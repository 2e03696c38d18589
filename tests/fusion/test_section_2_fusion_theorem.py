"""FFN Fusion, section 2: a sum of MLPs is one MLP, with a gate or without, with biases, of any
widths; and section 5, the worked example with numbers."""

import pytest
import torch
from torch import Tensor

from loops import each
from penstock.errors import ShapeError
from penstock.fusion.mlp_matrices import MlpMatrices, fuse_mlps, scaled_inputs, split_mlp

pytestmark = pytest.mark.torch


def random_mlp(width: int, *, gated: bool = True, biased: bool = False) -> MlpMatrices:
    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64)

    bias = (drawn(width), drawn(width) if gated else None, drawn(6)) if biased else (None,) * 3
    gate = drawn(width, 6) if gated else None
    return MlpMatrices(drawn(width, 6), drawn(6, width), gate, *bias)


def applied(mlp: MlpMatrices, z: Tensor) -> Tensor:
    def plus(x: Tensor, bias: Tensor | None) -> Tensor:
        return x if bias is None else x + bias

    inside = plus(z @ mlp.up.T, mlp.up_bias)
    if mlp.gate is None:
        inside = torch.nn.functional.gelu(inside)
    else:
        inside = torch.nn.functional.silu(plus(z @ mlp.gate.T, mlp.gate_bias)) * inside
    return plus(inside @ mlp.down.T, mlp.down_bias)


@each("gated", (True, False))
@each("biased", (True, False))
@each("multiple", (1, 8))
def test_section_5_mlps_of_8_5_and_7_are_one_of_20(
    gated: bool, biased: bool, multiple: int
) -> None:
    parts = [random_mlp(width, gated=gated, biased=biased) for width in (8, 5, 7)]
    fused, z = fuse_mlps(parts, multiple), torch.randn(9, 6, dtype=torch.float64)
    assert fused.width == (20 if multiple == 1 else 24)
    right = torch.stack([applied(part, z) for part in parts]).sum(0)
    assert float((applied(fused, z) - right).abs().max()) < 1e-13


def test_parts_come_out_as_they_went_in() -> None:
    parts = [random_mlp(width) for width in (8, 5, 7)]
    found = split_mlp(fuse_mlps(parts, 16), (8, 5, 7))
    assert all(a.equal(b) for one, two in zip(parts, found) for a, b in zip(one[:3], two[:3]))


def test_a_scale_of_the_input_is_one_of_the_matrices() -> None:
    part, z, scale = random_mlp(5), *torch.randn(2, 6, dtype=torch.float64)
    difference = applied(scaled_inputs(part, scale), z) - applied(part, z * scale)
    assert float(difference.abs().max()) < 1e-13


def test_parts_that_differ_in_more_than_width_are_refused() -> None:
    with pytest.raises(ShapeError, match="differ in more than their width"):
        fuse_mlps([random_mlp(8), random_mlp(8, gated=False)])
    with pytest.raises(ShapeError, match="has no parts of 8, 13"):
        split_mlp(random_mlp(20), (8, 13))
    with pytest.raises(ShapeError, match="with one bias outside"):
        split_mlp(random_mlp(20, biased=True), (8, 12))
