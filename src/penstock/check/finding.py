"""What a check says: findings with coordinates, or facts about a schedule that is proven."""

from dataclasses import dataclass, field

from penstock.core.ops import Op
from penstock.errors import ScheduleError

RULES: dict[str, str] = {
    "known": "every op belongs to the shape: its stage, microbatch and slice exist",
    "stream": "an op is in a lane of its own stream and, for a shard, on its own device",
    "complete": "every unit of work is done exactly once: one forward and one backward",
    "annotation": "pairs, loans, gangs, after and shares name ops that exist and can run that way",
    "read-before-write": "an op may only read what an earlier op has written",
    "slice-order": "slices go forward from first to last and backward from last to first, because "
    "later slices read the keys and values of earlier ones, and return their gradients",
    "deadlock": "no set of lanes may wait for each other in a circle",
    "one-home": "a stage's weights are on one device unless the shape declares copies",
    "local": "only outputs, gradients and vocabulary parts are sent to other devices; what an op "
    "saves stays on its device",
    "collective-order": "all members join the collectives of one buffer in the same order",
    "confirmed": "before a confirmation (C) a device runs only forwards, whose inputs come from "
    "forwards before one: what was computed with a wrong update is run again",
    "memory": "no device may hold more than its limit, in any timing that the order allows",
    "channel": "sends and receives of one channel come in the same order on both ends",
    "slot": "a receive needs a free slot, and a slot is free once its reader has ended",
    "lifetime": "a buffer is freed once, after its last reader",
}
"""Every rule in one sentence; a finding names one of them."""


@dataclass(frozen=True)
class Finding:
    """One broken rule; `ops[0]` is the op to blame, the others are involved."""

    rule: str
    ops: tuple[Op, ...]
    device: int
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}\nrule: {RULES[self.rule]}\nhint: {self.hint}"


@dataclass(frozen=True)
class Report:
    """The outcome of a check: no findings is a proof."""

    findings: tuple[Finding, ...] = ()
    ops: int = 0
    unordered: tuple[int, ...] = field(default=())
    """Stages whose weight gradients are not accumulated in ascending order of microbatches."""

    @property
    def proven(self) -> bool:
        return not self.findings

    @property
    def accumulation(self) -> str:
        """`ascending` where every stage adds its gradients in the order of one process."""
        return "mixed" if self.unordered else "ascending"

    def error(self, name: str) -> ScheduleError:
        """The first finding as an exception."""
        first = self.findings[0]
        more = f" (and {len(self.findings) - 1} more)" if len(self.findings) > 1 else ""
        return ScheduleError(
            f"{name} is not valid: {first.message}{more}\nrule: {RULES[first.rule]}",
            findings=self.findings,
            hint=first.hint,
        )
