"""One alternative for each block, so that a score is least and costs stay within budgets.

Each alternative was scored alone, in the model that has everything else as it was. Scores and costs
add up. An alternative may stand for several blocks that follow each other. The choice is exact:
from block to block, of all choices so far only those are kept to which no other is at least as good
in the score and in every cost.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.errors import ShapeError


class Alternative(NamedTuple):
    """What may stand in the place of a block."""

    name: str
    score: float
    """What it loses: the loss of the model with it, less that of the model without."""
    costs: tuple[float, ...]
    """Such as latency, bytes of keys and values, parameters."""
    blocks: int = 1
    """How many blocks it stands for."""


class _Label(NamedTuple):
    """A choice for the blocks so far."""

    score: float
    costs: tuple[float, ...]
    chosen: tuple[Alternative, ...] = ()


def choose(
    library: Sequence[Sequence[Alternative]], budgets: Sequence[float]
) -> tuple[Alternative, ...]:
    """The alternatives of the least score, by the block at which each begins.

    >>> kept, gone = Alternative("kept", 0.0, (1,)), Alternative("gone", 0.3, (0,))
    >>> [each.name for each in choose([[kept, gone], [kept, gone._replace(score=0.1)]], [1])]
    ['kept', 'gone']
    """
    front: list[list[_Label]] = [[] for _ in range(len(library) + 1)]
    front[0] = [_Label(0.0, (0.0,) * len(budgets))]
    for at, alternatives in enumerate(library):
        for label in front[at]:
            for each in alternatives:
                _refuse_misfit(each, at, len(library), len(budgets))
                longer = _with(label, each)
                if all(cost <= most for cost, most in zip(longer.costs, budgets)):
                    front[at + each.blocks].append(longer)
        for stop in range(at + 1, len(front)):
            front[stop] = _undominated(front[stop])
    if not front[-1]:
        raise ShapeError(
            f"no choice of alternatives for {len(library)} blocks stays within "
            f"{', '.join(f'{most:g}' for most in budgets)}",
            hint="give larger budgets, or cheaper alternatives",
        )
    return min(front[-1], key=lambda label: label.score).chosen


def _with(label: _Label, each: Alternative) -> _Label:
    costs = tuple(own + more for own, more in zip(label.costs, each.costs))
    return _Label(label.score + each.score, costs, (*label.chosen, each))


def _undominated(labels: Iterable[_Label]) -> list[_Label]:
    """Those to which no other is at least as good in everything; of equals the first."""
    found: list[_Label] = []
    for label in sorted(labels, key=lambda each: (each.costs, each.score)):
        if not any(
            other.score <= label.score and all(a <= b for a, b in zip(other.costs, label.costs))
            for other in found
        ):
            found.append(label)
    return found


def _refuse_misfit(each: Alternative, at: int, blocks: int, budgets: int) -> None:
    if each.blocks < 1 or at + each.blocks > blocks or len(each.costs) != budgets:
        raise ShapeError(
            f"{each.name} at block {at} of {blocks} stands for {each.blocks} blocks and has "
            f"{len(each.costs)} costs, but there are {budgets} budgets",
            hint="an alternative ends with the last block at the latest, and has all costs",
        )
