"""Ranks that do something together, and fail together.

A rank that raises while the others go on to wait for it is a hang. So whatever a rank does between
two waits is tried, the outcomes are exchanged, and an error of one rank is raised on all of them,
with the same words.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch.distributed as dist

from penstock.errors import PenstockError, RunError
from penstock.files.durable import reason

T = TypeVar("T")


class RankOutcome(NamedTuple):
    """What one rank made of its part: a value, or an error in words."""

    value: Any = None
    error: str = ""
    hint: str = ""


class Ranks:
    """The ranks of a gloo group; `None` is one process alone."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self.size = dist.get_world_size(group) if group is not None else 1
        self.rank = dist.get_rank(group) if group is not None else 0

    @property
    def leads(self) -> bool:
        """Whether this rank does what must be done once."""
        return self.rank == 0

    def together(self, work: Callable[[], T]) -> list[T]:
        """What `work` gives on each rank; where one fails, all fail with the first cause."""
        cause: Exception | None = None
        try:
            own = RankOutcome(value=work())
        except PenstockError as error:
            cause, own = error, RankOutcome(error=error.message, hint=error.hint)
        except Exception as error:
            cause, own = error, RankOutcome(error=reason(error))
        outcomes = self._exchange(own)
        for rank, outcome in enumerate(outcomes):
            if outcome.error:
                where = f"rank {rank}: " if self.size > 1 else ""
                raise RunError(f"{where}{outcome.error}", hint=outcome.hint) from cause
        return [outcome.value for outcome in outcomes]

    def first(self, work: Callable[[], T]) -> T:
        """What `work` gives on the first rank, which alone does it, known to all."""
        return self.together(lambda: work() if self.leads else None)[0]  # type: ignore[return-value]

    def _exchange(self, own: RankOutcome) -> list[RankOutcome]:
        if self.group is None:
            return [own]
        everyone: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(everyone, own, group=self.group)
        except RuntimeError as error:
            raise RunError(
                f"rank {self.rank} lost the connection to another rank during a checkpoint: "
                f"{error}",
                hint="look for the first rank that failed; earlier checkpoints are complete",
            ) from error
        return everyone
