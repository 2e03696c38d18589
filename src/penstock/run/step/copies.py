"""Ranks that hold the same weights hold the same bits, and can be asked to prove it.

A rank whose memory or network has made a mistake goes on training with weights of its own, and the
loss shows it late or never. All copies are computed from the same numbers in the same order, so
any difference is a fault.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

from penstock.errors import RunError
from penstock.run.step.engine import Engine

DIGEST_BYTES = 7
"""Of a SHA-256, which fit into a signed number of 64 bits."""


def refuse_unequal_copies(engine: Engine) -> None:
    """Return where all ranks that hold the same weights have the same bits; refuse otherwise, on
    each of them. All ranks call it together, and have heard each other before one refuses."""
    engine.settle()
    mesh, sharding = engine.mesh, engine.sharding
    held, dealt = _held(engine), engine.layout.cell.experts
    copies = _difference(held.pop(1, {}), sharding.copies(mesh))
    experts = _difference(held[dealt], mesh.expert_copies(dealt)) if held else ""
    if (
        found := _difference(_on_all_tensor_ranks(engine), mesh.along("tensor"))
        or copies
        or experts
    ):
        raise RunError(
            f"{found}, though both should hold the same weights",
            hint="memory or network of a machine may be faulty; resume from the newest checkpoint, "
            "whose copies were compared",
        )


def _held(engine: Engine) -> dict[int, dict[str, Tensor]]:
    """What this rank has of each parameter, by the number of replicas of which one has it."""
    found: dict[int, dict[str, Tensor]] = {}
    for weights in engine.weights.values():
        for name, value in engine.sharding.held(weights).items():
            found.setdefault(weights.layout.part(name).dealt_over, {})[name] = value
    return found


def _on_all_tensor_ranks(engine: Engine) -> dict[str, Tensor]:
    """Parameters that all tensor ranks of a device hold whole. Fully sharded there are none: tensor
    ranks whose stages differ in size own different ranges of what they have in common."""
    if engine.sharding.buffers is not None:
        return {}
    return {
        name: weights.named(weights.value)[name]
        for weights in engine.weights.values()
        for name, part in weights.layout.parts_in(len(weights.value)).items()
        if len(part.holders) == engine.mesh.grid.tensor
    }


def _difference(values: dict[str, Tensor], group: ProcessGroup | None) -> str:
    """The first parameter that is not the same on all ranks of a group, in words."""
    if group is None or not values:
        return ""
    stated = torch.tensor([_digest(value) for value in values.values()])
    heard = [torch.zeros_like(stated) for _ in range(group.size())]
    distributed.all_gather(heard, stated, group=group)
    ranks = distributed.get_process_group_ranks(group)
    for name, column in zip(values, torch.stack(heard).t().tolist()):
        if odd := _odd(column):
            return f"{name} of rank {ranks[odd]} is not what rank {ranks[0]} has"
    return ""


def _odd(column: Sequence[int]) -> int:
    """The first that differs from the one at the beginning; 0 where none does."""
    return next((at for at, other in enumerate(column) if other != column[0]), 0)


def _digest(value: Tensor) -> int:
    content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    return int.from_bytes(hashlib.sha256(content).digest()[:DIGEST_BYTES], "big")
