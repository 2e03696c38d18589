"""Schedule -> Schedule: each file is one idea that works on any legal schedule.

A transform knows no schedule by name and encodes no dependency: it puts a short block of ops in the
place of one, and leaves the proof of the result to the checker.
"""

from penstock.transform.group import group
from penstock.transform.recompute import (
    recompute_all,
    recompute_all_but_last_slices,
    recompute_stages,
)
from penstock.transform.slices import cut_slices, weigh_slices
from penstock.transform.split_backward import merge_backward, split_backward

__all__ = [
    "cut_slices",
    "group",
    "merge_backward",
    "recompute_all",
    "recompute_all_but_last_slices",
    "recompute_stages",
    "split_backward",
    "weigh_slices",
]
