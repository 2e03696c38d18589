"""What a short file may ask for.

A file of two ops can speak of a million stages. Whoever looks at the schedule makes tables with a
place for every stage and microbatch, so the sizes are compared with the ops that are there before
any table is made. A file that lacks some ops, or many, is the checker's to judge.
"""

from penstock.core.shape import Shape

SOME = 1_000
"""Pieces of work that every file may speak of."""
PER_OP = 10
"""And so many more for each op that it has."""


def missing_ops(shape: Shape, ops: int) -> str:
    """What is wrong with a shape whose ops are nearly all missing; empty where it is well."""
    pieces = shape.stages * shape.units
    if pieces <= SOME + PER_OP * ops:
        return ""
    return (
        f"{shape.stages:,} stages x {shape.units:,} units (microbatches x slices) need at least "
        f"{2 * pieces:,} ops, but there are {ops:,}"
    )
