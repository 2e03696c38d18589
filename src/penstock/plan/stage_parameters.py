"""How many parameters a stage has: what it stores, what it has gradients of, what decays, what is
frozen."""

from collections.abc import Hashable
from typing import NamedTuple

from penstock.core.shape import Shape
from penstock.cost.workload import Workload

MAIN_BYTES = 4
"""Main weights, gradients and moments are kept in 32 bits, or in more where that is computed in."""


class StageCounts(NamedTuple):
    """How many parameters a stage or shard has."""

    matrices: int
    elements: int
    """Of gradients."""
    stored: int
    frozen: int


def counts_of_homes(workload: Workload, shape: Shape) -> list[StageCounts]:
    """Those of every stage, and behind them of every shard. Most are like others, for which they
    are worked out once."""
    last, known, found = shape.stages - 1, dict[Hashable, StageCounts](), list[StageCounts]()
    for home in range(shape.homes):
        layers = None if home > last else (workload.elements(home), workload.frozen(home))
        like = layers, home == 0, home == last
        if like not in known:
            every = (stage_matrices, stage_elements, stored_elements, frozen_elements)
            known[like] = StageCounts(*(count(workload, home, shape) for count in every))
        found.append(known[like])
    return found


def stage_matrices(workload: Workload, stage: int, shape: Shape | None = None) -> int:
    """Parameters of a stage that decay. They are updated together, and the roots of their second
    moments are there at once."""
    stored, model = stored_elements(workload, stage, shape), workload.part
    if stage >= len(workload.layers):
        return stored
    _, vectors = workload.elements(stage)
    if stage == len(workload.layers) - 1 and model.trains_all:
        vectors += model.last_norm.vectors
    return stored - vectors


def stage_elements(workload: Workload, stage: int, shape: Shape | None = None) -> int:
    """Gradients of a stage, or of the largest vocabulary shard under a number behind all stages;
    embedding and head have their own even where they are tied."""
    part = workload.part
    ends = _end_elements(workload, stage, shape) if part.trains_all else 0
    if stage == len(workload.layers) - 1:
        ends += part.head_adapters
    return ends if stage >= len(workload.layers) else ends + sum(workload.elements(stage))


def stored_elements(workload: Workload, stage: int, shape: Shape | None = None) -> int:
    """Parameters of a stage or shard that are trained; embedding and head that are tied are one
    where both are at the same place."""
    elements = stage_elements(workload, stage, shape)
    return elements - _held_twice(workload, stage, shape) * workload.part.trains_all


def frozen_elements(workload: Workload, stage: int, shape: Shape | None = None) -> int:
    """Parameters of a stage or shard that are not trained: they have values alone."""
    if workload.part.trains_all:
        return 0
    ends = _end_elements(workload, stage, shape) - _held_twice(workload, stage, shape)
    return ends if stage >= len(workload.layers) else ends + workload.frozen(stage)


def _end_elements(workload: Workload, stage: int, shape: Shape | None) -> int:
    """Embedding, head and last norm of a stage or shard."""
    model, last = workload.part, len(workload.layers) - 1
    embed, loss = (shape.embed, shape.loss) if shape else ("F", "F")
    ends = ((stage == 0, embed == "E"), (stage == last, loss != "F"))
    if stage > last:
        words = -(-model.vocabulary // (shape.devices if shape else 1))
        return words * model.hidden * sum(on_shards for _, on_shards in ends)
    count = model.head_weights * sum(is_end and not on_shards for is_end, on_shards in ends)
    return count + model.last_norm.vectors if stage == last else count


def _held_twice(workload: Workload, stage: int, shape: Shape | None) -> int:
    """Elements of a tied head beside its embedding, whose values are those of that."""
    if not workload.model.tied:
        return 0
    if stage >= len(workload.layers):
        return _end_elements(workload, stage, shape) // 2
    both = len(workload.layers) == 1 and not (shape and shape.shards)
    return workload.part.head_weights * both
