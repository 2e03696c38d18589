"""What the ops and the transfers of a step took, from the marks that every step leaves.

Whoever chooses the order of the next steps predicts them with what the last one has shown. The time
of an op is from its start to its end, after everything that it waited for. A transfer is seen where
its receiver had nothing else to do when it left: there the reader starts when it arrives. Where a
link has no such transfer, what hid it is at least as long, and the shortest one is taken.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from statistics import median
from typing import NamedTuple, TypeVar

from penstock.core.transfers import moves_of
from penstock.cost.model import Cost
from penstock.cost.profile import NANOSECOND, Key, Profile
from penstock.run.observe.measured_timeline import gather, of_cells, part_of, timeline_of
from penstock.run.step.engine import Engine
from penstock.sim.timeline import Timeline

LinkEnds = tuple[int, int]
"""From which device to which."""
Name = TypeVar("Name")


class MeasuredTimes(NamedTuple):
    """A step in seconds."""

    ops: dict[Key, float]
    """By kind, stage and slice."""
    links: dict[LinkEnds, float]
    """Of one transfer on each link."""
    whole: float
    """From the start of the first op to the end of the last."""

    def profile(self, sizes: Cost) -> Profile:
        """The same as a cost model, with the sizes of another one."""
        links = {link: round(time * 1e9) * NANOSECOND for link, time in self.links.items()}
        return Profile(self.ops, sizes, Fraction(0), links)


def measure_step(engine: Engine) -> MeasuredTimes | None:
    """Times of the last step, of the slowest replica in each respect; at the first rank."""
    part = part_of(engine.executor, engine.plan.schedule)
    parts = gather(part, engine.mesh.world)
    if not parts:
        return None
    schedule = engine.plan.schedule
    replicas = engine.mesh.grid.groups("device", "sequence", "tensor")
    return _slowest(
        [
            measured_times(timeline_of(schedule, of_cells([parts[r] for r in ranks])))
            for ranks in replicas
        ]
    )


def measured_times(timeline: Timeline) -> MeasuredTimes:
    """What a measured timeline says of ops and links."""
    table, found = timeline.schedule.table, dict[Key, list[float]]()
    lasted = ((timeline.end - timeline.start) * float(timeline.tick)).tolist()
    for op, time in zip(table.ops(), lasted):
        found.setdefault((op.kind, op.stage, op.slice), []).append(time)
    ops = {key: median(times) for key, times in found.items()}
    return MeasuredTimes(ops, _link_times(timeline), float(timeline.makespan))


def _link_times(timeline: Timeline) -> dict[LinkEnds, float]:
    """The median of transfers that nothing hid, else the least that any can have taken at most."""
    table, moves = timeline.schedule.table, moves_of(timeline.schedule)
    before = _ends_before(timeline)
    seen: dict[LinkEnds, list[int]] = {}
    most: dict[LinkEnds, int] = {}
    for writer, reader in zip(moves.writer.tolist(), moves.reader.tolist()):
        link = int(table.device[writer]), int(table.device[reader])
        left = int(timeline.end[writer])
        took = max(int(timeline.start[reader]) - left, 0)
        most[link] = min(took, most.get(link, took))
        if before[reader] <= left:
            seen.setdefault(link, []).append(took)
    tick = float(timeline.tick)
    return {link: tick * (median(seen[link]) if link in seen else most[link]) for link in most}


def _ends_before(timeline: Timeline) -> Sequence[int]:
    """When the op before each row of its lane has ended."""
    table = timeline.schedule.table
    ends = [0, *timeline.end[:-1].tolist()]
    for first in table.lane_start[:-1].tolist():
        if first < len(ends):
            ends[first] = 0
    return ends


def _slowest(replicas: Sequence[MeasuredTimes]) -> MeasuredTimes:
    return MeasuredTimes(
        _most(each.ops for each in replicas),
        _most(each.links for each in replicas),
        max(each.whole for each in replicas),
    )


def _most(found: Iterable[dict[Name, float]]) -> dict[Name, float]:
    most: dict[Name, float] = {}
    for each in found:
        for name, time in each.items():
            most[name] = max(time, most.get(name, time))
    return most
