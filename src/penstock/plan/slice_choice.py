"""How long slices are and how many of a sequence are kept, chosen from the lengths that there are.

Large slices are few, and few leave bubbles; small ones waste time of kernels, because every op
reads all weights of its stage. What is kept takes memory, and what is not runs forward twice. So
the grid of both is simulated over some batches of the data at hand: of those that have room for
each of these batches the fastest is taken. Source: arXiv:2503.02356, section 4.3 (grid search).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from penstock.arch.config import ModelConfig
from penstock.cost.hardware import Hardware
from penstock.cost.model import UnitCost
from penstock.errors import PlanError
from penstock.plan.ragged_batch import OrderedBatch, RaggedBatches, SliceRule
from penstock.sim import simulate

BatchLengths = Sequence[Sequence[int]]
"""Lengths of the sequences of some batches."""
HasRoom = Callable[[OrderedBatch], bool]
"""Whether there is memory for a batch in this order."""

SMALLEST_SHARE = 64
"""The smallest slice is one part in so many of the longest sequence."""
SMALLEST = 16
"""Tokens of a slice at least, where sequences are that long."""


class ChosenRule(NamedTuple):
    """A rule, and what it was chosen for."""

    rule: SliceRule
    time: Fraction
    """Predicted time of all batches, in the unit of the cost."""
    whole: Fraction | None
    """The same where every sequence is one slice; None where that has no room."""
    tried: int
    """Rules that were simulated."""
    fitting: int
    """How many of them have room."""


def slice_sizes(longest: int) -> list[int]:
    """Sizes to choose from: the longest sequence, halved again and again.

    >>> slice_sizes(1000)
    [16, 32, 63, 125, 250, 500, 1000]
    """
    least, sizes = max(-(-longest // SMALLEST_SHARE), min(SMALLEST, longest)), {longest}
    size = longest
    while (size := -(-size // 2)) >= least and size < max(sizes):
        sizes.add(size)
    return sorted(sizes)


def weight_read_tokens(model: ModelConfig, hardware: Hardware) -> int:
    """Tokens whose products take as long as reading the weights that they are multiplied with."""
    seconds = Fraction(model.element_bytes, hardware.memory)
    return max(round(seconds * hardware.linear / 2), 1)  # 2 FLOPs for each weight and token


def choose_rule(
    base: RaggedBatches,
    batches: BatchLengths,
    fits: HasRoom,
    *,
    size: int = 0,
    retain: int = 0,
    warmup: int = 0,
) -> ChosenRule:
    """The fastest rule that has room for each of the batches; what is not 0 is given."""
    tried = fitting = 0
    best: tuple[Fraction, SliceRule] | None = None
    whole: Fraction | None = None
    for rule in _rules(base.longest, SliceRule(size, retain, warmup), _longest(batches)):
        tried += 1
        time = _time(replace(base, rule=rule), batches, fits)
        if time is None:
            continue
        fitting += 1
        whole = time if rule.size == base.longest else whole
        if best is None or time < best[0]:
            best = time, rule
    if best is None:
        raise PlanError(
            f"none of {tried} ways to cut sequences of up to {base.longest:,} tokens has room",
            hint="take smaller slices, more devices or shorter sequences, or allow more memory",
        )
    return ChosenRule(best[1], best[0], whole, tried, fitting)


def _longest(batches: BatchLengths) -> int:
    return max(max(lengths) for lengths in batches)


def _rules(limit: int, given: SliceRule, longest: int) -> Iterator[SliceRule]:
    """The grid, small slices first: of equally fast rules the one with less memory is met first."""
    for size in [given.size] if given.size else slice_sizes(limit):
        most = -(-longest // size)
        for retain in [given.retain] if given.retain else _doubled(most):
            for warmup in [given.warmup] if given.warmup else sorted({1, most}):
                yield SliceRule(size, retain, warmup)


def _doubled(most: int) -> list[int]:
    """1, 2, 4 and so on, and the most.

    >>> _doubled(6)
    [1, 2, 4, 6]
    """
    return sorted({2**power for power in range(most.bit_length())} | {most})


def _time(ragged: RaggedBatches, batches: BatchLengths, fits: HasRoom) -> Fraction | None:
    """The predicted time of all batches; None where one has no room."""
    total = Fraction(0)
    for lengths in batches:
        batch = ragged.order(lengths)
        if not fits(batch):
            return None
        total += simulate(ragged.weighed(batch), UnitCost()).makespan
    return total
