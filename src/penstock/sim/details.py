"""The parts of a simulated timeline that only pictures and reports need."""

from dataclasses import dataclass

import numpy as np

from penstock.core.rules import NAMES
from penstock.core.scoreboard import Run
from penstock.core.table import Ticks
from penstock.core.transfers import moves_of
from penstock.cost.model import Cost
from penstock.sim.links import links_of
from penstock.sim.memory import changes_of, curves
from penstock.sim.timeline import Curve, Timeline, Transfers


@dataclass(frozen=True)
class Simulated:
    """Starts, transfers and curves, worked out from the cost model when somebody looks."""

    cost: Cost
    run: Run | None = None
    """What the general graph gave; None where the plain loop kept only the ends."""

    def starts(self, timeline: Timeline) -> Ticks:
        if self.run is not None:
            return self.run.start
        scaled = self.cost.durations(timeline.schedule)
        return timeline.end - scaled.ticks * int(scaled.tick / timeline.tick)

    def transfers(self, timeline: Timeline) -> Transfers:
        schedule, moves = timeline.schedule, moves_of(timeline.schedule)
        leave = timeline.end[moves.writer].astype(np.int64)
        latency = np.zeros((schedule.shape.devices,) * 2, np.int64)
        for edge, link in links_of(schedule, self.cost).items():
            latency[edge] = int(link.latency / timeline.tick)
        device = schedule.table.device
        arrive = leave + latency[device[moves.writer], device[moves.reader]]
        if self.run is not None and len(self.run.arrival):
            leave, arrive = self.run.departure, self.run.arrival
        payload = tuple(np.array(NAMES, object)[moves.buffer].tolist())
        return Transfers(moves.writer, moves.reader, payload, leave, arrive)

    def curves(self, timeline: Timeline) -> tuple[Curve, ...]:
        at_start, at_end, grain = changes_of(timeline.schedule, self.cost)
        found = curves(timeline.schedule, at_start, at_end, (timeline.start, timeline.end))
        factor = grain / timeline.grain
        return tuple(
            Curve(curve.time, curve.level * factor.numerator // factor.denominator)
            for curve in found
        )
