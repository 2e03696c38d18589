"""What a rank sends in each op of a schedule: parts of its slice, as often as it has layers."""

from collections.abc import Collection, Iterator

from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.core.ops import Op
from penstock.cost.collectives import (
    BACKWARD_KINDS,
    FORWARD_KINDS,
    GATHERING_KINDS,
    Collective,
    RepeatedPart,
    SlicePart,
    slice_collectives,
)
from penstock.cost.layer_sums import alike_layers
from penstock.cost.rank_share import RankShare
from penstock.cost.workload import Workload


def op_collectives(
    workload: Workload, share: RankShare, op: Op, on_shards: Collection[str] = ()
) -> list[Collective]:
    """What a rank sends in an op of a schedule, from its beginning to its end; `on_shards` are
    those of embedding and head that all devices have a part of."""
    parts = op_parts(workload, share, op, on_shards)
    return [each._replace(times=times) for times, part in parts for each in part]


def op_parts(
    workload: Workload, share: RankShare, op: Op, on_shards: Collection[str] = ()
) -> list[RepeatedPart]:
    """The same as parts that ops of one slice have in common, each with how often it happens."""
    slice = slice_collectives(share, workload.lengths[op.mb][: op.slice + 1])
    if op.kind in GATHERING_KINDS:
        return [(1, slice.to_shard)]
    embeds = op.stage == 0 and EMBEDDING not in on_shards
    heads = op.stage == len(workload.layers) - 1 and HEAD not in on_shards
    before: SlicePart = ()
    behind: SlicePart = ()
    if op.kind in FORWARD_KINDS:
        before = slice.embedding_forward if embeds else slice.from_other_stage
    elif op.kind in BACKWARD_KINDS:
        before = slice.loss_backward if heads else slice.from_other_stage
        behind = slice.embedding_backward if embeds else ()
    return [(1, before), *_of_layers(workload, share, op), (1, behind)]


def _of_layers(workload: Workload, share: RankShare, op: Op) -> Iterator[RepeatedPart]:
    """Those of the layers of an op, of each kind, with a sliding window and without one."""
    lengths = workload.lengths[op.mb][: op.slice + 1]
    for kind, seen, layers in alike_layers(share.model, workload.split[op.stage]):
        own = share.of_kind(kind)
        if layers and op.kind in FORWARD_KINDS:
            yield layers, slice_collectives(own, lengths, seen).forward_of_layer
        elif layers and op.kind in BACKWARD_KINDS:
            yield layers, slice_collectives(own, lengths, seen).backward_of_layer[op.kind]
