"""How many parameters a stage has: what it stores, what it has gradients of, what decays."""

from penstock.core.shape import Shape
from penstock.cost.workload import Workload

MAIN_BYTES = 4
"""Main weights, gradients and moments are kept in 32 bits, or in more where that is computed in."""


def stage_matrices(workload: Workload, stage: int, shape: Shape | None = None) -> int:
    """Parameters of a stage that decay. They are updated together, and the roots of their second
    moments are there at once."""
    stored, model = stored_elements(workload, stage, shape), workload.part
    if stage >= len(workload.layers):
        return stored
    _, vectors = workload.elements(stage)
    if stage == len(workload.layers) - 1:
        vectors += model.last_norm.vectors
    return stored - vectors


def stage_elements(workload: Workload, stage: int, shape: Shape | None = None) -> int:
    """Gradients of a stage, or of the largest vocabulary shard under a number behind all stages;
    embedding and head have their own even where they are tied."""
    model, last = workload.part, len(workload.layers) - 1
    embed, loss = (shape.embed, shape.loss) if shape else ("F", "F")
    ends = ((stage == 0, embed == "E"), (stage == last, loss != "F"))
    if stage > last:
        words = -(-model.vocabulary // (shape.devices if shape else 1))
        return words * model.hidden * sum(on_shards for _, on_shards in ends)
    count = sum(workload.elements(stage))
    count += model.head_weights * sum(is_end and not on_shards for is_end, on_shards in ends)
    return count + model.last_norm.vectors if stage == last else count


def stored_elements(workload: Workload, stage: int, shape: Shape | None = None) -> int:
    """Parameters of a stage or shard; embedding and head that are tied are one where both are at
    the same place."""
    elements = stage_elements(workload, stage, shape)
    if not workload.model.tied:
        return elements
    if stage >= len(workload.layers):
        return elements // 2
    both = len(workload.layers) == 1 and not (shape and shape.shards)
    return elements - workload.part.head_weights * both
