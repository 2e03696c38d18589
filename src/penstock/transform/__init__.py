"""Schedule -> Schedule: each file is one idea that works on any legal schedule.

A transform knows no schedule by name and encodes no dependency: it puts a short block of ops in the
place of one, and leaves the proof of the result to the checker.
"""

from penstock.transform.combine import CHANGES, combine, make_changes
from penstock.transform.group import group
from penstock.transform.host_update import update_on_host
from penstock.transform.offload import add_copies, offload_stages, take_turns
from penstock.transform.recompute import (
    recompute_all,
    recompute_all_but_last_slices,
    recompute_stages,
    recompute_without_attention,
)
from penstock.transform.sharding import shard
from penstock.transform.slices import cut_slices, weigh_slices
from penstock.transform.split_backward import merge_backward, split_backward
from penstock.transform.vocabulary import spread_vocabulary

__all__ = [
    "CHANGES",
    "add_copies",
    "combine",
    "cut_slices",
    "group",
    "make_changes",
    "merge_backward",
    "offload_stages",
    "recompute_all",
    "recompute_all_but_last_slices",
    "recompute_stages",
    "recompute_without_attention",
    "shard",
    "split_backward",
    "spread_vocabulary",
    "take_turns",
    "update_on_host",
    "weigh_slices",
]
