"""AdaOffload: use all the memory there is, and offload only what does not fit.

Systems that always offload the same share of activations wait for copies where memory is free. Here
an order is built as if the memory were larger; then each device walks along its lane as a pager
would. When a forward finds no room, the activation that is needed last goes to the host, among
those whose copy has had time to finish; it comes back as soon as there is room that nobody needs
before. The best of several pretended memories is taken, the true one, without copies, among them.
PipeOffload's own plan, which moves every activation on a grid of slots, competes where it fits.

Source: the heuristic that arXiv:2510.05186 begins with; the paper says what it does and not how, so
the rules are ours.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from penstock.core.ops import Op
from penstock.core.schedule import Lanes, Schedule
from penstock.core.shape import Shape
from penstock.cost.model import Cost
from penstock.errors import ShapeError
from penstock.schedules import Case
from penstock.schedules.generators.board import Budget
from penstock.schedules.generators.group_block import block_slots
from penstock.schedules.generators.streams import alternate_split
from penstock.schedules.generators.zero_bubble_search import search_zero_bubble
from penstock.search._prices import cost_of
from penstock.search.offload.offload_plan import Infeasible, uniform_windows
from penstock.search.offload.room import hold_for_room, proven_levels
from penstock.sim import Timeline, simulate
from penstock.transform.offload import Channels, Window, add_copies, take_turns

Worth = Callable[[Timeline], Fraction]


def ada_offload(case: Case, limit: Fraction, worth: Worth, channels: Channels = ()) -> Schedule:
    """The best order within the limit that the heuristic finds, at the prices of a request."""
    if limit < case.held:
        raise ShapeError(
            f"no order keeps {case.p} devices within {float(limit):g}",
            hint=f"raise the limit to the {float(case.held):g} of one microbatch",
        )
    shape, cost = Shape.even(case.p, case.m), cost_of(case)
    tried: list[tuple[Fraction, int, int, Schedule]] = []
    for number, candidate in enumerate(_candidates(shape, case, limit)):
        schedule = _sharing(candidate, cost, channels) if channels else candidate
        timeline = simulate(schedule, cost)
        if max(timeline.peak) <= limit:
            tried.append((worth(timeline), len(schedule.table), number, schedule))
    return min(tried)[-1]


def _sharing(schedule: Schedule, cost: Cost, channels: Channels) -> Schedule:
    """The schedule with copies that take turns as they would come if each had its own channel."""
    spans = simulate(schedule, cost).spans()
    windows = {span.op: Window(span.start, span.end) for span in spans}
    return take_turns(schedule, windows, channels)


def _candidates(shape: Shape, case: Case, limit: Fraction) -> Iterator[Schedule]:
    """Orders for the true memory and for larger ones, cut down to the true one by offloads."""
    seen: set[Schedule] = set()
    for lanes in _orders(case, limit):
        bare = Schedule.of("ada-offload", shape, lanes)
        for lead in _leads(case):
            paged = page(bare, case, limit, lead)
            if paged is not None and paged not in seen:
                seen.add(paged)
                yield paged
    planned = _on_the_grid(shape, case, limit)
    if planned is not None:
        yield planned


def _on_the_grid(shape: Shape, case: Case, limit: Fraction) -> Schedule | None:
    """Microbatches one by one and all of them offloaded in slots, None where that does not fit."""
    copies = case.price("O") + case.price("L")
    if not copies or not case.step:
        return None
    try:
        windows = uniform_windows(shape, 1, copies / case.step)
    except Infeasible:
        return None
    lanes = [[op for _, op in lane] for lane in block_slots(shape, group=1)]
    full = add_copies(Schedule.of("ada-offload", shape, lanes), windows, taking=_taking(case))
    if max(proven_levels(full, cost_of(case))) > limit:
        return None
    return hold_for_room(full, cost_of(case), [limit] * case.p)


def _taking(case: Case) -> str:
    """Kinds of ops that may need room."""
    return "FI" if case.stash > case.act else "F"


def _orders(case: Case, limit: Fraction) -> Iterator[Lanes]:
    """Orders for measured times at several memories, and the two that are drawn for 1F1B's."""
    unit = case.held
    rooms = (limit, limit + unit, limit + 2 * unit, 2 * case.p * unit)
    for pretended in dict.fromkeys(max(limit, room) for room in rooms):
        yield search_zero_bubble(case.p, case.m, Budget.of(case, pretended))
    for delay in range(2):
        yield [
            alternate_split(
                [("F", r, mb, 0) for mb in range(case.m)],
                [("B", r, mb, 0) for mb in range(case.m)],
                warmup=case.p - 1 - r,
                delay=delay * r,
            )
            for r in range(case.p)
        ]


def _leads(case: Case) -> list[int]:
    """How many ops of mean length cover a copy; and none, which needs the least memory."""
    mean = case.step / 3
    copy = max(case.price("O"), case.price("L"))
    return [max(1, -int(-copy // mean)) if mean else 1, 0]


def page(schedule: Schedule, case: Case, limit: Fraction, lead: int) -> Schedule | None:
    """The schedule with the offloads that keep it within the limit, None where none do."""
    windows: dict[Op, Window] = {}
    for device in range(schedule.shape.devices):
        pager = _Pager(schedule.lane(device), case, limit, lead)
        if not pager.walk():
            return None
        windows |= pager.windows
    if not any(op.kind == "O" for op in windows):
        return schedule
    full = add_copies(schedule, windows, taking=_taking(case))
    return hold_for_room(full, cost_of(case), [limit] * case.p)


OffloadUnit = tuple[int, int, int]
"""Stage, microbatch and slice."""


@dataclass
class _Pager:
    """Memory along one lane; times are turns of the lane."""

    lane: list[Op]
    case: Case
    limit: Fraction
    lead: int
    """Turns that a copy should have to itself."""
    windows: dict[Op, Window] = field(default_factory=dict)
    held: Fraction = Fraction(0)
    here: dict[OffloadUnit, int] = field(default_factory=dict)
    """Activations that were never moved, with the turn at which their forward had ended."""
    away: set[OffloadUnit] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.windows |= {op: Window(turn, turn + 1) for turn, op in enumerate(self.lane)}
        self.needed = {op[1:]: turn for turn, op in enumerate(self.lane) if op.kind == "I"}

    def walk(self) -> bool:
        """Play the lane, moving activations out and in; False where that does not help."""
        for turn, op in enumerate(self.lane):
            if op.kind == "I" and op[1:] in self.away:
                if not self._make_room(turn, self.case.act, op[1:]):
                    return False
                self._load(op[1:], turn)
            self._fetch_ahead(turn)
            takes, changes = self._levels(op)
            if not self._make_room(turn, max(takes, takes + changes), op[1:]):
                return False
            self.held += takes + changes
            if op.kind == "F":
                self.here[op[1:]] = turn + 1
            elif op.kind == "I":
                self.here.pop(op[1:], None)
        return True

    def _levels(self, op: Op) -> tuple[Fraction, Fraction]:
        """What an op takes at its start and changes at its end."""
        act, stash = self.case.act, self.case.stash
        none = Fraction(0)
        return {"F": (act, none), "I": (none, stash - act), "W": (none, -stash)}[op.kind]

    def _make_room(self, turn: int, room: Fraction, needed_now: OffloadUnit) -> bool:
        """Move activations out until there is room; not the one that is about to be used."""
        while self.held + room > self.limit:
            idle = {unit: ended for unit, ended in self.here.items() if unit != needed_now}
            if not idle:
                return False
            rested = [unit for unit, ended in idle.items() if turn - ended >= self.lead]
            unit = max(rested or idle, key=self.needed.__getitem__)
            self.windows[Op("O", *unit)] = Window(self.here.pop(unit), turn)
            self.away.add(unit)
            self.held -= self.case.act
        return True

    def _fetch_ahead(self, turn: int) -> None:
        """Bring back what is needed soon, where the room is free until then."""
        level = self.held
        highest = level
        for ahead in range(turn, min(turn + self.lead + 1, len(self.lane))):
            op = self.lane[ahead]
            if op.kind == "I" and op[1:] in self.away:
                if highest + self.case.act > self.limit:
                    return
                self._load(op[1:], turn)
                level, highest = level + self.case.act, highest + self.case.act
            takes, changes = self._levels(op)
            highest = max(highest, level + takes, level + takes + changes)
            level += takes + changes

    def _load(self, unit: OffloadUnit, turn: int) -> None:
        self.windows[Op("L", *unit)] = Window(turn, self.needed[unit])
        self.away.remove(unit)
        self.held += self.case.act
