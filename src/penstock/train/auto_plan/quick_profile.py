"""A profile of some seconds: what plans for one model on this machine need, and no more.

A profile for other models takes half a minute. A plan is for one model, so matrices are measured at
its own widths and at those that two ranks share, on three layers of it and on as many tokens as
this kind of device computes in about a second.
"""

from dataclasses import replace
from typing import Any

from penstock.arch.config import ModelConfig
from penstock.estimate.utilisation import token_flops
from penstock.profiling.case import KINDS_OF_STAGE, ProfileCase
from penstock.profiling.measure.copies import collective_rows
from penstock.profiling.measure.neighbours import Neighbours
from penstock.profiling.measure.run import busy_ranks, measure_rank, profile_record
from penstock.profiling.measure.timing import Rounds
from penstock.run.launch.worker_pool import Crew
from penstock.run.process.machine import this_machine
from penstock.run.process.rendezvous import Connection

STEP_FLOPS = {"cpu": 1e10, "cuda": 1e14}
"""FLOPs of a step that takes a second or less."""
FEWEST, MOST = 64, 8192
"""Tokens of the profiled sequence."""
QUICK_WIDTHS = (0.5, 1.0)
QUICK_SLICES = 4
QUICK_ROUNDS = Rounds(1, 2, 1)
QUICK_MESSAGES = (1 << 12, 1 << 16, 1 << 20, 1 << 22)
"""Bytes of a collective."""
LONGEST_MEASURED = 600.0
"""Seconds after which a machine that does not answer is given up."""


def quick_case(model: ModelConfig, length: int, precision: str, device: str) -> ProfileCase:
    """Three layers of the model on a sequence that is short enough."""
    few = replace(model, layers=len(KINDS_OF_STAGE))
    tokens = max(FEWEST, min(MOST, length))
    while tokens > FEWEST and token_flops(few, tokens) * tokens > STEP_FLOPS[device]:
        tokens //= 2
    return ProfileCase("model", few, tokens, QUICK_SLICES, precision, QUICK_WIDTHS)


def profile_here(case: ProfileCase, wanted: str, ranks: int) -> dict[str, Any]:
    """Kernels and steps, in processes that are started for it: a step needs all ranks of its run.
    On a host as many of them are busy as it will have ranks, or cores where these are fewer."""
    busy = min(busy_ranks(wanted, ranks), max(1, int(this_machine().cores)))
    with Neighbours(busy, LONGEST_MEASURED) as neighbours:
        often = QUICK_ROUNDS._replace(ranks=busy)
        return profile_record(case, neighbours.run(measure_rank, case, wanted, often))


def collectives_here(wanted: str, ranks: int) -> list[dict[str, Any]]:
    """What so many ranks send each other, with ranks that are started for it."""
    if ranks == 1:
        return []
    back_end = "gloo" if wanted == "cpu" else ""
    with Crew(ranks, limit=LONGEST_MEASURED, back_end=back_end) as crew:
        return crew.run(collective_rows, wanted, QUICK_MESSAGES)[0]


def collectives_of_ranks(connection: Connection, wanted: str) -> list[dict[str, Any]]:
    """The same with the ranks of a run; all of them measure together."""
    return [] if connection.alone else collective_rows(connection, wanted, QUICK_MESSAGES)
