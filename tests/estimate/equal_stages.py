"""Steps of equal stages that wait for nothing: what closed forms of papers are about."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from estimate.layouts import row
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.layout_cost import KINDS_OF_COMMUNICATION, LayoutCost
from penstock.estimate.memory_classes import DeviceMemory
from penstock.estimate.price import estimate_step, layout_cost
from penstock.estimate.request import layout_from
from penstock.estimate.step_schedule import StepSchedule, step_schedule
from penstock.sim.play import play

NARROW = {"layers": 32, "hidden": 4096, "ffn": 16384, "heads": 32, "vocabulary": 64}
"""A model whose ends weigh next to nothing, so that stages are equal."""
TOKENS = 8192


@dataclass(frozen=True)
class FreeStep:
    """The step of a layout in which no communication takes time, until its last backward."""

    layout: TrainingLayout

    @classmethod
    def of(cls, devices: int, microbatches: int, **changes: Any) -> "FreeStep":
        sizes = {"model": NARROW, "cluster": f"h100:{devices}", "mesh": f"pipeline={devices}"}
        sizes |= {"tokens": TOKENS, "batch_tokens": TOKENS * microbatches, "shard": "none"}
        return cls(layout_from(row(**(sizes | changes))))

    @cached_property
    def step(self) -> StepSchedule:
        return step_schedule(self.layout)

    @cached_property
    def cost(self) -> LayoutCost:
        every = frozenset(KINDS_OF_COMMUNICATION)
        return replace(layout_cost(self.layout, self.step), free=every)

    @cached_property
    def seconds(self) -> float:
        done, tick = play(self.step.schedule, self.cost, "together")
        return float(int(done.end[self.step.schedule.table.of_kinds("FBIW")].max()) * tick)

    def work(self, kinds: str, slice: int | None = None) -> float:
        """Seconds of ops of some kinds of one microbatch, or of a slice of it, on a device in the
        middle."""
        table = self.step.schedule.table
        ticks, tick = self.cost.durations(self.step.schedule)
        rows = table.of_kinds(kinds) & (table.mb == 0) & (table.device == 1)
        if slice is not None:
            rows &= table.slice == slice
        return float(int(ticks[rows].sum()) * tick)

    @cached_property
    def memory(self) -> tuple[DeviceMemory, ...]:
        return estimate_step(self.layout).memory

    def while_running(self, kind: str) -> int:
        """Bytes that an op of a kind needs while it runs, on a device in the middle."""
        table = self.step.schedule.table
        ticks, grain = self.cost.amounts(self.step.schedule, "temp")
        rows = table.of_kinds(kind) & (table.mb == 0) & (table.device == 1)
        return int(ticks[rows].max() * grain)
