"""The parts of a simulated timeline that only pictures and reports need."""

from dataclasses import dataclass

import numpy as np

from penstock.core.buffers import BUFFERS
from penstock.core.graph import graph_of
from penstock.core.rules import NAMES
from penstock.core.scoreboard import Run
from penstock.core.table import Ints, Ticks
from penstock.core.transfers import joined_edges, moves_of
from penstock.cost.model import Cost
from penstock.sim.links import delays, links_of, transfer_links
from penstock.sim.memory import changes_of, curves
from penstock.sim.timeline import Curve, Timeline, Transfers

_PER_LOAN = np.array([BUFFERS[name].per == "loan" for name in NAMES])
"""What moves while the ops at both ends run in lock-step."""


def _names(buffer: Ints) -> tuple[str, ...]:
    return tuple(np.array(NAMES, object)[buffer].tolist())


@dataclass(frozen=True)
class Simulated:
    """Starts, transfers and curves, worked out from the cost model when somebody looks."""

    cost: Cost
    run: Run | None = None
    """What the general graph gave; None where the plain loop kept only the ends."""
    strands: str = "together"
    """When the strands of a pair deliver."""

    def starts(self, timeline: Timeline) -> Ticks:
        if self.run is not None:
            return self.run.start
        scaled = self.cost.durations(timeline.schedule)
        return timeline.end - scaled.ticks * int(scaled.tick / timeline.tick)

    def transfers(self, timeline: Timeline) -> Transfers:
        """Messages, and behind them what collectives bring."""
        sent, joined = self._sent(timeline), self._joined(timeline)
        return Transfers(
            np.concatenate([sent.writer, joined.writer]),
            np.concatenate([sent.reader, joined.reader]),
            sent.payload + joined.payload,
            np.concatenate([sent.start, joined.start]),
            np.concatenate([sent.end, joined.end]),
        )

    def _sent(self, timeline: Timeline) -> Transfers:
        schedule, moves = timeline.schedule, moves_of(timeline.schedule)
        leave = timeline.end[moves.writer].astype(np.int64)
        latency = links_of(schedule, self.cost).latencies(timeline.tick)
        arrive = leave + latency[transfer_links(schedule)]
        if self.run is not None and len(self.run.arrival):
            leave, arrive = self.run.departure, self.run.arrival
        lent = _PER_LOAN[moves.buffer]
        leave = np.where(lent, timeline.start[moves.writer], leave)
        arrive = np.where(lent, timeline.end[moves.reader], arrive)
        return Transfers(moves.writer, moves.reader, _names(moves.buffer), leave, arrive)

    def _joined(self, timeline: Timeline) -> Transfers:
        """From a part's writer until its reader has all parts."""
        schedule = timeline.schedule
        graph, edges = graph_of(schedule), joined_edges(schedule)
        writer, reader, buffer = graph.writer[edges], graph.reader[edges], graph.buffer[edges]
        leave = timeline.end[writer].astype(np.int64)
        lasting = delays(schedule, links_of(schedule, self.cost), timeline.tick)
        arrive = leave + lasting[edges] if len(lasting) else leave
        return Transfers(writer, reader, _names(buffer), leave, arrive)

    def curves(self, timeline: Timeline) -> tuple[Curve, ...]:
        at_start, at_end, grain = changes_of(timeline.schedule, self.cost)
        found = curves(timeline.schedule, at_start, at_end, (timeline.start, timeline.end))
        factor = grain / timeline.grain
        return tuple(
            Curve(curve.time, curve.level * factor.numerator // factor.denominator)
            for curve in found
        )
