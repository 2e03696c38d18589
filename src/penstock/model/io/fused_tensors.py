"""Files in which several matrices are one: queries, keys and values, and gate and up (Phi).

Here they are parameters of their own, since ranks share each of them head by head. So a file's
matrix is cut when it is read, and put together when it is written; both know its parts from the
config alone.

    file    model.layers.0.self_attn.qkv_proj.weight     [(a + 2 g) d, h]
    here    ...q_proj.weight, ...k_proj.weight, ...v_proj.weight, one below the other
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import Shapes, expected_shapes
from penstock.errors import ShapeError

FUSED: Mapping[str, tuple[str, ...]] = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
"""Matrices of files, and the parameters that they are."""


class StoredRows(NamedTuple):
    """Where a parameter stands in files: rows of a tensor, or all of one that has its name."""

    name: str
    rows: range | None = None

    def cut(self, stored: Tensor) -> Tensor:
        return stored if self.rows is None else stored[self.rows.start : self.rows.stop]


@lru_cache(maxsize=16)
def stored_rows(config: ModelConfig) -> Mapping[str, StoredRows]:
    """Where each parameter of a model stands in its files."""
    shapes, found, ends = expected_shapes(config), dict[str, StoredRows](), dict[str, int]()
    for name, shape in shapes.items():
        stored = _stored_name(name) if config.fused_files else name
        if stored == name:
            found[name] = StoredRows(name)
            continue
        start = ends.get(stored, 0)
        ends[stored] = start + shape[0]
        found[name] = StoredRows(stored, range(start, ends[stored]))
    return found


def stored_shapes(config: ModelConfig) -> Shapes:
    """The tensors that the files of a model have."""
    shapes, found = expected_shapes(config), Shapes()
    for name, place in stored_rows(config).items():
        first, *rest = shapes[name]
        found[place.name] = (found.get(place.name, (0,))[0] + first, *rest)
    return found


def _stored_name(name: str) -> str:
    """What the tensor is called in which files have a parameter."""
    for fused, parts in FUSED.items():
        for part in parts:
            if name.endswith(f".{part}.weight"):
                return f"{name.removesuffix(f'{part}.weight')}{fused}.weight"
    return name


def fuse_tensors(
    config: ModelConfig, tensors: Iterable[tuple[str, Tensor]]
) -> Iterator[tuple[str, Tensor]]:
    """Tensors as files have them, of parameters that come in any order: parts of one are held until
    all of them are there."""
    places, held = stored_rows(config), dict[str, dict[str, Tensor]]()
    parts: dict[str, list[str]] = {}
    for name, place in places.items():
        parts.setdefault(place.name, []).append(name)
    for name, tensor in tensors:
        if name not in places or places[name].rows is None:
            yield name, tensor
            continue
        stored = places[name].name
        some = held.setdefault(stored, {})
        some[name] = tensor
        if len(some) == len(parts[stored]):
            yield stored, torch.cat([held[stored][part] for part in parts[stored]])
            del held[stored], some
    for stored, some in held.items():
        missing = [name for name in parts[stored] if name not in some]
        raise ShapeError(
            f"{stored} cannot be written: {', '.join(missing)} is not there",
            hint="one rank writes all parts of a matrix that is one in files",
        )
