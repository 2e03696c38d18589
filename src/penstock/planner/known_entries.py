"""The schedules of all divisions, listed once and then known to every process of a search.

Divisions with as many devices and microbatches may run the same schedules, whatever their cells
are. Processes share the cells, so each of them would list nearly all of these again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.planner.bounding import SharedPieces
from penstock.planner.divisions import Division
from penstock.planner.entries import Entries
from penstock.planner.processes import PlanProcesses


@dataclass(frozen=True)
class ListEntries:
    """The task to list the schedules of a division."""

    division: Division

    def run(self, pieces: SharedPieces) -> Entries:
        return pieces.entries(self.division)


@dataclass(frozen=True)
class KnowEntries:
    """The task to keep what others have listed."""

    found: tuple[tuple[Division, Entries], ...]

    def run(self, pieces: SharedPieces) -> None:
        for division, entries in self.found:
            pieces.keep_entries(division, entries)


def share_entries(divisions: Sequence[Division], processes: PlanProcesses) -> None:
    """List the schedules of some divisions, in all processes together, and tell all of them."""
    each = {processes.pieces.entries_key(division): division for division in divisions}
    different = [*each.values()]
    found = processes.run([*map(ListEntries, different)])
    told = tuple((different[at], entries) for at, entries in found)
    processes.tell(KnowEntries(told))
