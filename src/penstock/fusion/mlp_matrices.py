"""The sum of several MLPs of one input as one wider MLP, and its parts again.

    sum_j down_j (act(gate_j x) * up_j x)  =  down* (act(gate* x) * up* x)

    gate*, up*   rows of all parts, one part behind the other
    down*        their columns
    biases       inside one behind the other, outside their sum

It holds for every function that is applied element by element, with a gate or without one, and for
parts of different widths. Columns of zeros behind them change nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.errors import ShapeError


class MlpMatrices(NamedTuple):
    """An MLP, [outputs, inputs] each; without a gate it is act(up x)."""

    up: Tensor
    down: Tensor
    gate: Tensor | None = None
    up_bias: Tensor | None = None
    gate_bias: Tensor | None = None
    down_bias: Tensor | None = None

    @property
    def width(self) -> int:
        """Elements inside."""
        return len(self.up)


def fuse_mlps(parts: Sequence[MlpMatrices], multiple: int = 1) -> MlpMatrices:
    """One MLP that gives the sum of several, its width rounded up to a multiple."""
    _refuse_unlike(parts)
    zeros = -sum(part.width for part in parts) % multiple
    ups, downs, *others, outside = zip(*parts)
    up, gate, up_bias, gate_bias = (_behind(each, zeros) for each in (ups, *others))
    assert up is not None
    down = torch.nn.functional.pad(torch.cat(downs, dim=1), (0, zeros))
    biases = [each for each in outside if each is not None]
    summed = torch.stack(biases).sum(0) if biases else None
    return MlpMatrices(up, down, gate, up_bias, gate_bias, summed)


def split_mlp(fused: MlpMatrices, widths: Sequence[int]) -> list[MlpMatrices]:
    """The parts of a fused MLP, by their widths; columns behind them are left out. A bias outside
    has no parts, and is refused."""
    if sum(widths) > fused.width or fused.down_bias is not None:
        raise ShapeError(
            f"an MLP of {fused.width} columns has no parts of {', '.join(map(str, widths))}"
            + (" with one bias outside" if fused.down_bias is not None else ""),
            hint="give the widths that were fused",
        )
    ends = [sum(widths[: at + 1]) for at in range(len(widths))]
    return [_part(fused, slice(end - width, end)) for end, width in zip(ends, widths)]


def scaled_inputs(part: MlpMatrices, scale: Tensor) -> MlpMatrices:
    """An MLP of x that gives what the other gives of x * scale."""
    gate = None if part.gate is None else _scaled(part.gate, scale)
    return part._replace(up=_scaled(part.up, scale), gate=gate)


def _scaled(matrix: Tensor, scale: Tensor) -> Tensor:
    wide = torch.promote_types(matrix.dtype, torch.float32)
    return (matrix.to(wide) * scale.to(wide)).to(matrix.dtype)


def _behind(parts: Sequence[Tensor | None], zeros: int) -> Tensor | None:
    """Rows of all parts and rows of zeros; nothing where parts have none."""
    given = [part for part in parts if part is not None]
    if not given:
        return None
    return torch.cat([*given, given[0].new_zeros((zeros, *given[0].shape[1:]))])


def _part(fused: MlpMatrices, own: slice) -> MlpMatrices:
    gate, up_bias, gate_bias = (
        None if tensor is None else tensor[own]
        for tensor in (fused.gate, fused.up_bias, fused.gate_bias)
    )
    return MlpMatrices(fused.up[own], fused.down[:, own].contiguous(), gate, up_bias, gate_bias)


def _refuse_unlike(parts: Sequence[MlpMatrices]) -> None:
    """Refuse parts of which some have a matrix that others have not, or other inputs."""
    there = {tuple(tensor is None for tensor in part) for part in parts}
    sizes = {(part.up.shape[1], part.down.shape[0], part.up.dtype) for part in parts}
    if len(there) != 1 or len(sizes) != 1:
        raise ShapeError(
            f"{len(parts)} MLPs that differ in more than their width cannot be fused",
            hint="all have a gate or none, the same biases, inputs and type of numbers",
        )
