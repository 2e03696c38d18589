"""What a rank sends in each op of a schedule: parts of its slice, as often as it has layers."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.core.ops import Op
from penstock.cost.collectives import (
    BACKWARD_KINDS,
    FORWARD_KINDS,
    GATHERING_KINDS,
    Collective,
    SlicePart,
    slice_collectives,
)
from penstock.cost.layer_sums import alike_layers
from penstock.cost.rank_share import RankShare
from penstock.cost.workload import Workload

LAYER_PARTS = dict.fromkeys(FORWARD_KINDS, "forward_of_layer") | {
    "B": "backward_of_layer",
    "I": "input_gradient_of_layer",
}
"""What a layer sends in ops of each kind, by its name among `SliceCollectives`."""


class PartOfSlice(NamedTuple):
    """Something that is sent in a slice: ops of many stages have it in common."""

    share: RankShare
    window: int | None
    """Keys that a query sees, in layers with a sliding window."""
    name: str
    """Of `SliceCollectives`."""

    def of(self, lengths: tuple[int, ...]) -> SlicePart:
        """What is sent in the last of these slices."""
        found: SlicePart = getattr(slice_collectives(self.share, lengths, self.window), self.name)
        return found


RepeatedPart = tuple[int, PartOfSlice]
"""How often a part of an op happens, and what is sent each time."""


def op_collectives(
    workload: Workload, share: RankShare, op: Op, on_shards: Collection[str] = ()
) -> list[Collective]:
    """What a rank sends in an op of a schedule, from its beginning to its end; `on_shards` are
    those of embedding and head that all devices have a part of."""
    parts = op_parts(workload, share, (op.kind, op.stage), on_shards)
    lengths = workload.lengths[op.mb][: op.slice + 1]
    return [each._replace(times=times) for times, part in parts for each in part.of(lengths)]


def op_parts(
    workload: Workload, share: RankShare, of: tuple[str, int], on_shards: Collection[str] = ()
) -> list[RepeatedPart]:
    """The same of all ops of a kind on a stage, as parts that stages have in common."""
    kind, stage = of

    def end(name: str) -> RepeatedPart:
        return 1, PartOfSlice(share, None, name)

    if kind in GATHERING_KINDS:
        return [end("to_shard")]
    embeds = stage == 0 and EMBEDDING not in on_shards
    heads = stage == len(workload.layers) - 1 and HEAD not in on_shards
    before = behind = "nothing"
    if kind in FORWARD_KINDS:
        before = "embedding_forward" if embeds else "from_other_stage"
    elif kind in BACKWARD_KINDS:
        before = "loss_backward" if heads else "from_other_stage"
        behind = "embedding_backward" if embeds else "nothing"
    name = LAYER_PARTS.get(kind)
    layers = parts_of_layers(share, workload.split[stage], name) if name else ()
    return [end(before), *layers, end(behind)]


def parts_of_layers(share: RankShare, layers: range, name: str) -> Iterator[RepeatedPart]:
    """Those of some layers, of each kind, with a sliding window and without one."""
    for model, window, count in alike_layers(share.model, layers):
        if count:
            yield count, PartOfSlice(share.of_kind(model), window, name)
