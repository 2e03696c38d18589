"""What a rank sends in each op of a schedule: parts of its slice, as often as it has layers."""

from collections.abc import Iterator

from penstock.core.ops import Op
from penstock.cost.collectives import (
    BACKWARD_KINDS,
    FORWARD_KINDS,
    Collective,
    RepeatedPart,
    SlicePart,
    slice_collectives,
)
from penstock.cost.layer_sums import alike_layers
from penstock.cost.rank_share import RankShare
from penstock.cost.workload import Workload


def op_collectives(workload: Workload, share: RankShare, op: Op) -> list[Collective]:
    """What a rank sends in an op of a schedule, from its beginning to its end."""
    parts = op_parts(workload, share, op)
    return [each._replace(times=times) for times, part in parts for each in part]


def op_parts(workload: Workload, share: RankShare, op: Op) -> list[RepeatedPart]:
    """The same as parts that ops of one slice have in common, each with how often it happens."""
    slice = slice_collectives(share, workload.lengths[op.mb][: op.slice + 1])
    last = len(workload.layers) - 1
    before: SlicePart = ()
    behind: SlicePart = ()
    if op.kind in FORWARD_KINDS:
        before = slice.from_other_stage if op.stage else slice.embedding_forward
    elif op.kind in BACKWARD_KINDS:
        before = slice.from_other_stage if op.stage < last else slice.loss_backward
        behind = () if op.stage else slice.embedding_backward
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
