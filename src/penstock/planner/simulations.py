"""Candidates that are simulated in other processes, those of one schedule in the same."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.errors import PenstockError
from penstock.estimate.host_room import room_on_host
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.price import Estimate, TimedStep, estimate, estimate_step
from penstock.estimate.step_schedule import ScheduleRequest, schedule_request
from penstock.planner.bounding import SharedPieces
from penstock.planner.candidates import CandidateGroup, Candidates, candidate_layout
from penstock.planner.copy_bounds import copy_bounds
from penstock.planner.divisions import Division, Kind, kind_of
from penstock.planner.gradient_bounds import more_gradient_bytes
from penstock.planner.problem import PlanProblem
from penstock.planner.processes import PlanProcesses


class Refused(NamedTuple):
    """What cannot be made, and why."""

    message: str


class Slower(NamedTuple):
    """What is not faster than it has to be to matter."""

    seconds: float


class RuledOut(NamedTuple):
    """What was not simulated, because a closer bound says that it does not matter."""

    seconds: float


class NoRoom(NamedTuple):
    """What was not simulated, because a closer bound says that a GPU or a host has no room."""

    needed: float


CandidateOutcome = Estimate | Slower | RuledOut | NoRoom | Refused


class Chosen(NamedTuple):
    """A candidate that is to be simulated. Its layout is made where it is simulated."""

    group: CandidateGroup
    entry: int
    """The number of its schedule."""
    limit: float
    """The seconds that it has to stay below."""
    bytes: float
    """Its bound of the fullest GPU."""

    def layout(self, pieces: SharedPieces) -> TrainingLayout:
        """The layout, of pieces that may not have the division's schedules yet."""
        entry = pieces.entries(self.group.division).entries[self.entry]
        return candidate_layout(pieces.problem, *self.group, entry)


@dataclass(frozen=True)
class Simulate:
    """The task to simulate candidates that have much of their schedules in common."""

    each: tuple[Chosen, ...]

    def run(self, pieces: SharedPieces) -> list[CandidateOutcome]:
        """What came of each."""
        layouts = [chosen.layout(pieces) for chosen in self.each]
        alike: dict[ScheduleRequest, list[int]] = {}
        for at, layout in enumerate(layouts):
            alike.setdefault(schedule_request(layout), []).append(at)
        found: dict[int, CandidateOutcome] = {}
        for members in alike.values():
            limited = [Limited(layouts[at], *self.each[at][2:]) for at in members]
            found.update(zip(members, simulate_alike(pieces, limited)))
        return [found[at] for at in range(len(layouts))]


class Limited(NamedTuple):
    """A layout, and what is known of it."""

    layout: TrainingLayout
    limit: float
    bytes: float


def simulate_alike(pieces: SharedPieces, each: Sequence[Limited]) -> list[CandidateOutcome]:
    """What comes of layouts of one schedule, with what each has to stay below.

    The best of each kind is wanted. So the memory of the fastest is worked out first, and once one
    of a kind fits, slower ones do not matter.
    """
    found: dict[int, CandidateOutcome] = {}
    fast: list[tuple[float, int, TimedStep]] = []
    for at, limited in enumerate(each):
        outcome = _timed(pieces, limited)
        if isinstance(outcome, TimedStep):
            fast.append((outcome.seconds, at, outcome))
        else:
            found[at] = outcome
    fitting: set[Kind] = set()
    for seconds, at, step in sorted(fast, key=lambda each: each[:2]):
        kind = kind_of(step.layout)
        found[at] = outcome = (
            Slower(seconds) if kind in fitting else _with_memory(pieces.problem, step)
        )
        if isinstance(outcome, Estimate) and outcome.fits:
            fitting.add(kind)
    return [found[at] for at in range(len(each))]


def _with_memory(problem: PlanProblem, step: TimedStep) -> CandidateOutcome:
    try:
        return without_vain_copies(problem, step.estimate())
    except PenstockError as error:
        return Refused(error.message)


def without_vain_copies(problem: PlanProblem, found: Estimate) -> Estimate:
    """The same step as a plan that copies nothing, where no activation is kept long enough to go to
    the host and come back, unless the user wants it so."""
    if found.host or found.layout.offload == "none" or "offload" in problem.fixed:
        return found
    return replace(found, layout=replace(found.layout, offload="none"))


def _timed(pieces: SharedPieces, limited: Limited) -> TimedStep | CandidateOutcome:
    """The step of a candidate, if it is fast enough for its memory to matter."""
    try:
        ruled_out = _ruled_out(pieces, limited)
        if ruled_out is not None:
            return ruled_out
        step = TimedStep.of(limited.layout)
        return step if step.seconds < limited.limit else Slower(step.seconds)
    except PenstockError as error:
        return Refused(error.message)


def _ruled_out(pieces: SharedPieces, limited: Limited) -> CandidateOutcome | None:
    """What closer bounds say, which need the plain order alone."""
    layout, cluster = limited.layout, limited.layout.cluster
    division = Division(layout.mesh, layout.pipeline, layout.rows, layout.microbatches)
    piece = pieces.of(division)(layout.slices or 1)
    if layout.shard == "full":
        needed = limited.bytes + more_gradient_bytes(layout, piece)
        if needed > cluster.gpu.memory:
            return NoRoom(needed)
    if layout.offload != "none":
        least = copy_bounds(layout, piece)
        if least.host > room_on_host(cluster):
            return NoRoom(least.host)
        if least.seconds >= limited.limit:
            return RuledOut(least.seconds)
    return None


@dataclass(frozen=True)
class Price:
    """The task to simulate one layout, whether it fits or not."""

    layout: TrainingLayout

    def run(self, pieces: SharedPieces) -> Estimate | Refused:
        """The estimate without what is exposed."""
        try:
            return without_vain_copies(pieces.problem, estimate_step(self.layout))
        except PenstockError as error:
            return Refused(error.message)


@dataclass(frozen=True)
class Explain:
    """The task to simulate one layout, and once more without each kind of communication."""

    layout: TrainingLayout

    def run(self, pieces: SharedPieces) -> Estimate:
        """The whole estimate."""
        return estimate(self.layout)


@dataclass(frozen=True)
class Begun:
    """Candidates that are being simulated."""

    processes: PlanProcesses
    numbers: tuple[int, ...]
    members: list[list[int]]
    """Places of those that each task is for."""
    tickets: range

    def outcomes(self) -> list[CandidateOutcome]:
        """What came of each, once all are done."""
        found: dict[int, CandidateOutcome] = {}
        for number, outcomes in self.processes.results(self.tickets):
            found.update(zip(self.members[number], outcomes))
        return [found[at] for at in range(len(self.numbers))]


@dataclass(frozen=True)
class Simulations:
    """What is simulated by the processes of a search."""

    processes: PlanProcesses

    def begin(
        self, candidates: Candidates, numbers: Sequence[int], limits: Sequence[float]
    ) -> "Begun":
        """Simulate candidates, with the seconds that each has to stay below, while others are
        chosen."""
        tasks: dict[int, list[int]] = {}
        for at, schedule in enumerate(candidates.schedule[numbers].tolist()):
            tasks.setdefault(schedule, []).append(at)
        groups = [candidates.groups[at] for at in candidates.group[numbers]]
        columns = (candidates.entry[numbers].tolist(), limits, candidates.bytes[numbers].tolist())
        chosen = [*map(Chosen, groups, *columns)]
        made_from = [
            (division.pipeline, division.microbatches, order)
            for (division, _), order in zip(groups, candidates.order[numbers].tolist())
        ]
        members = [*tasks.values()]
        each = [Simulate(tuple(chosen[at] for at in task)) for task in members]
        tickets = self.processes.begin(each, [made_from[at] for at, *_ in members])
        return Begun(self.processes, tuple(numbers), members, tickets)

    def estimates(self, layouts: Sequence[TrainingLayout]) -> list[Estimate]:
        """Those of layouts that can be made."""
        outcomes = self._of_each([*map(Price, layouts)])
        return [each for each in outcomes if isinstance(each, Estimate)]

    def explained(self, layouts: Sequence[TrainingLayout]) -> list[Estimate]:
        """Estimates with what is exposed."""
        return self._of_each([*map(Explain, layouts)])

    def _of_each(self, tasks: Sequence[Price] | Sequence[Explain]) -> list[Any]:
        keys = [_plain(schedule_request(task.layout)) for task in tasks]
        found = dict(self.processes.run(tasks, keys))
        return [found[number] for number in range(len(tasks))]


def _plain(request: ScheduleRequest) -> Hashable:
    """What schedules have in common that are made from the same one."""
    return request.order[:3]
