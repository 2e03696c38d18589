"""What may change from step to step: the order of the work, and how sequences are cut.

A layout is agreed once. A step plan is chosen for a batch, so a run can group its microbatches
anew, or take the lengths that its data has. Plans of equal signature are compiled once.
"""

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from penstock.core.program import Program
from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.lower import lower_for_running
from penstock.run.program.layout import Layout, homes_of, on_shards
from penstock.run.program.sharded_schedule import BufferCounts, schedule_for
from penstock.run.program.step_end import StepEnd, end_step
from penstock.run.program.token_groups import MicrobatchGroups, refuse_groups
from penstock.run.program.unsupported import (
    refuse_beside_groups,
    refuse_loans_in_cells,
    refuse_subsampling,
)


@dataclass(frozen=True)
class StepPlan:
    """A schedule over a layout, with the tokens of every slice."""

    layout: Layout
    schedule: Schedule
    lengths: tuple[tuple[int, ...], ...]
    """Tokens of each slice of each microbatch."""
    rows: int = 1
    """Sequences side by side in a microbatch, which others call the micro-batch size."""
    groups: tuple[MicrobatchGroups, ...] = ()
    """Of each microbatch, where ranks of a cell form groups; else all of them share each."""

    def __post_init__(self) -> None:
        slices = tuple(len(lengths) for lengths in self.lengths)
        if slices != self.schedule.shape.slices:
            raise ShapeError(
                f"the sequences are cut into {slices} slices, but {self.schedule.name} has "
                f"{self.schedule.shape.slices}",
                hint="give every slice of every microbatch a length",
            )
        if self.longest > self.layout.longest:
            raise ShapeError(
                f"a sequence has {self.longest} tokens, but the run was planned for "
                f"{self.layout.longest}",
                hint=f"start the run with sequences of up to {self.longest} tokens",
            )
        self._refuse_other_homes()
        refuse_loans_in_cells(self.schedule, self.layout.cell)
        refuse_subsampling(self.layout.model, self.schedule, self.layout.cell)
        if self.groups:
            refuse_groups(self.groups, self.lengths, self.layout.cell.ulysses)
            refuse_beside_groups(self.schedule, self.rows)

    def _refuse_other_homes(self) -> None:
        homes, shape, layout = homes_of(self.schedule), self.schedule.shape, self.layout
        if on_shards(shape) != layout.on_shards:
            raise ShapeError(
                f"{self.schedule.name} has the vocabulary {_placed(on_shards(shape))}, but this "
                f"run has it {_placed(layout.on_shards)}",
                hint="take a schedule with the placement that the run was started with",
            )
        if shape.to_attention != layout.to_attention:
            raise ShapeError(
                f"attention of {self.schedule.name} is given {shape.to_attention}, but that of "
                f"this run {layout.to_attention}",
                hint="take a schedule that sends what the run was started with",
            )
        if (shape.devices, homes) == (layout.devices, layout.homes):
            return
        raise ShapeError(
            f"{self.schedule.name} has its stages on devices {_listed(homes)}, but the weights of "
            f"this run are on {_listed(self.layout.homes)}",
            hint="take a schedule with the placement that the run was started with",
        )

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return max(sum(lengths) for lengths in self.lengths)

    def program(
        self, replicas: int, buffers: BufferCounts | None = None, end: StepEnd = end_step
    ) -> Program:
        """The whole step: the schedule, and how it ends on so many replicas. Ranks of a cell have
        parts of gradients, which are added up as those of replicas are. With `buffers` weights are
        gathered into so many when they are needed; `end` says how a step ends."""
        several = replicas * self.layout.cell.ranks > 1
        schedule = schedule_for(self.schedule, buffers)
        return lower_for_running(end(schedule, reduced=several, ties=self.layout.ties))

    @cached_property
    def signature(self) -> str:
        """Equal for plans that are run the same way."""
        content = repr((self.schedule.digest, self.lengths, self.rows, self.groups))
        return sha256(content.encode()).hexdigest()


def _placed(on_shards: tuple[str, ...]) -> str:
    return f"on all devices ({', '.join(on_shards)})" if on_shards else "on the first and the last"


def _listed(homes: tuple[int | None, ...]) -> str:
    return ", ".join("any" if home is None else str(home) for home in homes)
