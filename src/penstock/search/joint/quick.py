"""The joint search with little effort: what a registered schedule lets a user wait for."""

from penstock.search.best.registered import known_orders
from penstock.search.joint.joint import Candidate, Effort, Problem, search

QUICK_OPS = 2_000_000
QUICK_OPS_PER_OP = 5_000
"""What a search may place or replay: so much, and so much more for each op of the schedule."""


def quick(problem: Problem) -> Candidate | None:
    """The best candidate found from named placements and orders of records that do not search."""
    p, m, v = problem.devices, problem.microbatches, problem.chunks
    return search(
        problem, Effort(QUICK_OPS + QUICK_OPS_PER_OP * 3 * p * v * m), known_orders(p, m, v)
    )
