"""Tensors of a fused model, of those of the model it is made of, and back again.

Both directions go layer by layer, and ask for the tensors of one layer at a time. What a fused
model does not have any more (norms of the other layers of a run, bits that a scale rounded away) is
given apart, by names of its own, so that the way back is exact.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import MLP_NORM, ModelConfig
from penstock.arch.parameters import layer_parameters, layer_prefix, model_parameters
from penstock.fusion.exact_unfold import lost_bits, unfold
from penstock.fusion.fusion_plan import FusionPlan, fused_sources, without_attention
from penstock.fusion.mlp_matrices import MlpMatrices, fuse_mlps, scaled_inputs, split_mlp

TensorsByName = dict[str, Tensor]
Reading = Callable[[Sequence[str]], TensorsByName]
"""Tensors of a model by their names."""
MATRICES = {"up": "mlp.up_proj.weight", "gate": "mlp.gate_proj.weight"}
DOWN = "mlp.down_proj.weight"


class Apart(NamedTuple):
    """A tensor that the fused model has no place for."""

    name: str
    tensor: Tensor


def fuse_tensors_of(
    model: ModelConfig, plan: FusionPlan, read: Reading
) -> Iterator[tuple[str, Tensor] | Apart]:
    """The tensors of the fused model, and those that are kept apart."""
    before = without_attention(model, plan.remove)
    for number, layers in enumerate(fused_sources(before, plan)):
        if len(layers) > 1:
            yield from _fused_layer(before, layers, number, plan, read)
            continue
        names = [*layer_parameters(before, layers[0])]
        yield from _renamed(read(names), layers[0], number)
    yield from _ends(model, read)


def unfuse_tensors_of(
    model: ModelConfig, read: Reading, apart: TensorsByName
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of the model that was fused; without what was kept apart, parts of a run have the
    norm of the run."""
    number = 0
    for layer in range(model.layers):
        tensors, fused = read([*layer_parameters(model, layer)]), model.block(layer).fused
        if not fused:
            yield from _renamed(tensors, layer, number)
        for member, part in enumerate(_members(model, layer, tensors) if fused else ()):
            yield from _member(model, part, (layer, member), number + member, tensors, apart)
        number += len(fused) or 1
    yield from _ends(model, read)


def norm_name(model: ModelConfig, layer: int) -> str:
    """The norm in front of the MLP of a layer."""
    return f"{layer_prefix(layer)}{MLP_NORM[model.norms]}.weight"


def _fused_layer(
    model: ModelConfig, layers: range, number: int, plan: FusionPlan, read: Reading
) -> Iterator[tuple[str, Tensor] | Apart]:
    parts, norms = [], []
    for layer in layers:
        tensors = read([*layer_parameters(model, layer)])
        parts.append(_matrices(tensors, layer))
        norms.append(tensors[norm_name(model, layer)])
    if plan.norm == "own":
        scales = [_factor(model, norm) for norm in norms]
        folded = [scaled_inputs(part, scale) for part, scale in zip(parts, scales)]
        yield from _lost(number, parts, folded, scales)
        parts, norms = (
            folded,
            [*norms, torch.full_like(norms[-1], 0.0 if model.norm_adds_one else 1.0)],
        )
    for member in range(len(layers)):
        yield Apart(_apart(number, member, "norm"), norms[member])
    fused = fuse_mlps(parts, plan.multiple)
    yield norm_name(model, number), norms[-1]
    yield from _named(fused, number)


def _lost(
    number: int,
    parts: Sequence[MlpMatrices],
    folded: Sequence[MlpMatrices],
    scales: Sequence[Tensor],
) -> Iterator[Apart]:
    """What scales round away."""
    for member, (part, scaled, scale) in enumerate(zip(parts, folded, scales)):
        for name in MATRICES:
            lost = lost_bits(getattr(part, name), getattr(scaled, name), scale)
            yield Apart(_apart(number, member, name), lost)


def _member(
    model: ModelConfig,
    part: MlpMatrices,
    place: tuple[int, int],
    number: int,
    tensors: TensorsByName,
    apart: TensorsByName,
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of one part of a run."""
    norm = apart.get(_apart(*place, "norm"), tensors[norm_name(model, place[0])])
    for name in MATRICES:
        if (lost := apart.get(_apart(*place, name))) is not None:
            scale = _factor(model, norm)
            part = part._replace(**{name: unfold(getattr(part, name), scale, lost)})
    yield norm_name(model, number), norm
    yield from _named(part, number)


def _members(model: ModelConfig, layer: int, tensors: TensorsByName) -> list[MlpMatrices]:
    return split_mlp(_matrices(tensors, layer), model.block(layer).fused)


def _apart(layer: int, member: int, name: str) -> str:
    """
    >>> _apart(2, 0, "norm")
    'layers.2.parts.0.norm'
    """
    return f"layers.{layer}.parts.{member}.{name}"


def _matrices(tensors: TensorsByName, layer: int) -> MlpMatrices:
    prefix = layer_prefix(layer)
    inside = {name: tensors[prefix + stored] for name, stored in MATRICES.items()}
    return MlpMatrices(down=tensors[prefix + DOWN], **inside)


def _named(mlp: MlpMatrices, layer: int) -> Iterator[tuple[str, Tensor]]:
    prefix = layer_prefix(layer)
    for name, stored in MATRICES.items():
        yield prefix + stored, getattr(mlp, name)
    yield prefix + DOWN, mlp.down


def _factor(model: ModelConfig, norm: Tensor) -> Tensor:
    """What normed elements are multiplied by."""
    return norm + 1 if model.norm_adds_one else norm


def _renamed(tensors: TensorsByName, layer: int, number: int) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a layer that has another number now."""
    old, new = layer_prefix(layer), layer_prefix(number)
    for name, tensor in tensors.items():
        yield new + name.removeprefix(old), tensor


def _ends(model: ModelConfig, read: Reading) -> Iterator[tuple[str, Tensor]]:
    """Embedding, last norm and head."""
    names = [name for name in model_parameters(model) if not name.startswith("model.layers.")]
    yield from read(names).items()
