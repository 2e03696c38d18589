"""What is kept from one layout for others does not change what they cost."""

from typing import Any

import pytest

from estimate.layouts import row
from penstock.arch.cell_shape import CellShape
from penstock.arch.presets import model
from penstock.cost.collectives import slice_collectives
from penstock.cost.copies import Copies, _known_sent, _known_sizes
from penstock.cost.rank_share import RankShare
from penstock.estimate.cluster_links import cluster_links
from penstock.estimate.kept import kept_seconds, kept_sums
from penstock.estimate.kept_costs import kept_costs
from penstock.estimate.price import Estimate, estimate
from penstock.estimate.request import layout_from

KEPT: Any = (
    *(kept_costs, kept_sums, kept_seconds, cluster_links),
    *(_known_sent, _known_sizes, slice_collectives),
)
SHAPE = {"mesh": "tensor=2,sequence=2,pipeline=4", "tokens": 8192, "batch_tokens": 32 * 8192}
DIFFERENT = {
    "model": "tiny-fused",
    "cluster": "h100:12",
    "mesh": "tensor=2,pipeline=3",
    "tokens": 256,
    "batch_tokens": 8 * 256,
    "shard": "full",
}
"""A model whose layers are not all alike."""
LAYOUTS = [
    layout_from(row(**SHAPE | changes))
    for changes in (
        {},
        {"layers": "11,9,11,9"},
        {"schedule": "zb-h1", "shard": "optimizer"},
        {"schedule": "dualpipev", "shard": "full"},
        {"schedule": "zb-v", "shard": "none"},
        {"shard": "full", "schedule": "seq1f1b", "slices": 4},
        {"shard": "none", "rows": 2, "recompute": "all"},
        {"recompute": "layers=3", "attention": "unfused"},
        {"offload": "all", "schedule": "interleaved", "chunks": 2},
        {"mesh": "sequence=4,ring=4,pipeline=4", "model": "gemma3-1b", "cluster": "h100:64"},
        {"mesh": "pipeline=8", "vocabulary": True},
        {"mesh": "tensor=2,sequence=4,pipeline=4", "shard": "full"},
        {"mesh": "tensor=2,sequence=4,ring=2,pipeline=4", "shard": "optimizer"},
        *({**DIFFERENT, "layers": layers} for layers in ("1,1,2", "2,1,1", "1,2,1")),
    )
]


def _alone(number: int) -> Estimate:
    for each in KEPT:
        each.cache_clear()
    return estimate(LAYOUTS[number])


@pytest.mark.long
def test_layouts_cost_the_same_alone_and_after_others() -> None:
    alone = [_alone(number) for number in range(len(LAYOUTS))]
    for each in KEPT:
        each.cache_clear()
    assert [*map(estimate, LAYOUTS)] == alone
    for each in KEPT:
        each.cache_clear()
    assert [*map(estimate, reversed(LAYOUTS))] == alone[::-1]


def test_copies_of_stages_with_other_layers_send_something_else() -> None:
    """As many layers are not enough where layers differ, whichever split was asked for first."""
    share = RankShare(model("tiny-fused"), CellShape(tensor=2))
    splits = ((1, 1, 2), (2, 1, 1), (1, 1, 1, 1))
    first, second, third = (Copies(share, each, 4, shard="full").sent("Z", 1) for each in splits)
    assert first == third != second
