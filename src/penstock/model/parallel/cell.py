"""The ranks of a device of the schedule, and how they share its work."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from penstock.model.parallel.group import Pending, RankGroup, Result, Work, WorkOrResult
from penstock.model.parallel.tokens import ALL_TOKENS, TokenShares

Arguments = ParamSpec("Arguments")


@dataclass(frozen=True)
class Cell:
    """The groups of one rank; None where it is alone on an axis."""

    tensor: RankGroup | None = None
    """Ranks that share the matrices."""
    tokens: TokenShares = ALL_TOKENS
    """What of the tokens they hold between blocks."""
    ulysses: RankGroup | None = None
    """Ranks that share the tokens of a slice, and exchange them for heads in attention."""
    ring: RankGroup | None = None
    """Ranks that share the tokens of a slice, and pass keys and values round in attention."""
    experts: RankGroup | None = None
    """The same rank of all replicas, where these share the experts of a layer."""

    @property
    def alone(self) -> bool:
        groups = (self.tensor, self.ulysses, self.ring, self.experts)
        return all(group is None for group in groups)

    def begin(self, work: Work[Result]) -> WorkOrResult[Result]:
        """The work of a stage, for whoever drives it. A rank that is alone waits for nobody, unless
        other devices help it or it helps them: its work is done at once, or up to its first
        wait."""
        return _begun(work) if self.alone else work


SINGLE_RANK = Cell()


class OfCell(Protocol):
    """A stage on a rank of a cell."""

    @property
    def cell(self) -> Cell: ...


Owner = TypeVar("Owner", bound=OfCell)


def begun_in_cell(
    work: Callable[Concatenate[Owner, Arguments], Work[Result]],
) -> Callable[Concatenate[Owner, Arguments], WorkOrResult[Result]]:
    """A method that is work, as its caller sees it: begun by the cell of the stage."""

    @wraps(work)
    def begin(
        stage: Owner, /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> WorkOrResult[Result]:
        return stage.cell.begin(work(stage, *args, **kwargs))

    return begin


def _begun(work: Work[Result]) -> WorkOrResult[Result]:
    try:
        pending = next(work)
    except StopIteration as end:
        result: Result = end.value
        return result
    return _resumed(work, pending)


def _resumed(work: Work[Result], pending: Pending) -> Work[Result]:
    """Work that waits already."""
    yield pending
    del pending  # with what was sent and what landed, while the work goes on
    return (yield from work)


def result_of(work: Work[Result]) -> Result:
    """The result of work that waits for nobody."""
    try:
        next(work)
    except StopIteration as end:
        result: Result = end.value
        return result
    raise AssertionError("a rank that is alone waits for others")
