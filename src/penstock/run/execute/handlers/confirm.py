"""C: the early update of a stage is confirmed, or taken back and made anew, by the whole norm."""

from typing import Any, Protocol

from penstock.errors import RunError
from penstock.run.program.values import Places, Values


class FormerUpdates(Protocol):
    """The updates of the step before, until they are confirmed."""

    def confirm(self, kept: Any) -> bool:
        """Settle that of one stage; returns whether this device has to compute anew what it has
        begun, once the last of its stages is settled, and then refuses what is no number."""
        ...


class VoidStepError(Exception):
    """What has been computed of the step is void: its weights were wrong, and now are right."""

    def __init__(self, refusal: RunError | None = None) -> None:
        super().__init__()
        self.refusal = refusal
        """Why the step is not to be run again either."""


def confirm(kept: Any, piece: None, values: Values, reads: Places, writes: Places) -> None:
    """All devices see the same norm, so that all of them start again, or none."""
    (former,) = reads
    updates: FormerUpdates = values[former]
    try:
        again = updates.confirm(kept)
    except RunError as refusal:
        raise VoidStepError(refusal) from None
    if again:
        raise VoidStepError
