"""How much each block depends on each other: what changes in one where another is left out.

    h_j        what block j adds to the residual stream in the intact model
    h_j^i      the same where block i is the identity
    M_ij       1 - cos(h_j, h_j^i), on average over the tokens of a calibration set

Small numbers between two blocks say that the later one hardly needs the earlier one, so that both
may read the same input. Blocks in front of the one that is left out do not change, so each pass
starts behind it. Two cheaper measures of a block go with it: the distance between its input and its
output, and the size of what it adds over that of its input.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from penstock.errors import ShapeError
from penstock.fusion.residual_stream import ResidualStream, Sequence
from penstock.fusion.selection import DependencyMatrix


@dataclass(frozen=True, eq=False)
class Dependencies:
    """What was measured of a model, block by block."""

    matrix: DependencyMatrix
    """[left out, looked at]; 0 on the diagonal and in front of the block that is left out."""
    moved: DependencyMatrix
    """Distance between input and output of each block."""
    added: DependencyMatrix
    """Size of what each block adds, over that of its input."""
    loss: float
    """Of a label, on average."""
    tokens: int


def measure_dependencies(
    stream: ResidualStream,
    data: Iterable[Sequence],
    progress: Callable[[int], None] = lambda passes: None,
) -> Dependencies:
    """One pass through the intact model and one for each block that is left out; `progress` is told
    of each."""
    layers = stream.model.layers
    matrix, moved, added = np.zeros((layers, layers)), np.zeros(layers), np.zeros(layers)
    loss, labels, tokens = 0.0, 0, 0
    for sequence in data:
        states = _states(stream, sequence)
        moved += [_distances(x, y) for x, y in pairwise(states)]
        added += [_ratios(y - x, x) for x, y in pairwise(states)]
        loss, labels = loss + stream.loss(states[-1], sequence), labels + sequence.labels
        tokens += len(states[0])
        progress(1)
        for left_out in range(layers):
            matrix[left_out] += _without(stream, sequence, states, left_out)
            progress(1)
    if not labels:
        raise ShapeError("no token of the calibration set has a label", hint="give more data")
    return Dependencies(matrix / tokens, moved / tokens, added / tokens, loss / labels, tokens)


def _states(stream: ResidualStream, sequence: Sequence) -> list[Tensor]:
    """The residual stream in front of each block, and behind the last."""
    found = [stream.first(sequence)]
    for layer in range(stream.model.layers):
        found.append(stream.block(layer, found[-1], sequence))
    return found


def _without(
    stream: ResidualStream, sequence: Sequence, states: list[Tensor], left_out: int
) -> DependencyMatrix:
    """How far what each block adds is from what it adds in the intact model, summed over tokens."""
    found, x = np.zeros(stream.model.layers), states[left_out]
    for layer in range(left_out + 1, stream.model.layers):
        y = stream.block(layer, x, sequence)
        found[layer] = _distances(states[layer + 1] - states[layer], y - x)
        x = y
    return found


def _distances(one: Tensor, other: Tensor) -> float:
    """1 - cosine of each token, summed up; two that are nothing are equal. In 32 bits at least, and
    exactly 0 where both are the same."""
    wide = torch.promote_types(one.dtype, torch.float32)
    one, other = one.to(wide), other.to(wide)
    squares = (one * one).sum(-1), (other * other).sum(-1)
    sizes = (squares[0] * squares[1]).sqrt()
    cosines = torch.where(sizes > 0, (one * other).sum(-1) / sizes, 0.0)
    both = (squares[0] == 0) & (squares[1] == 0)
    return float((1 - torch.where(both, 1.0, cosines)).double().sum())


def _ratios(one: Tensor, other: Tensor) -> float:
    return float((one.double().norm(dim=-1) / other.double().norm(dim=-1)).sum())
