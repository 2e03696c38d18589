"""Which rank is where: the mesh of a run, drawn over its machines.

Ranks of a cell talk in every layer, devices once for each slice, replicas once for each step. An
order of the axes that puts a cell onto two machines works, and is slow for no visible reason: so
the ranks are shown before the first step.

    mesh        replica 2 x device 2 x tensor 2
      machine 0   replica 0   device 0: [0 1]   device 1: [2 3]
      machine 1   replica 1   device 0: [4 5]   device 1: [6 7]

Brackets hold a cell, with | between its sequence ranks and - for a rank on another machine.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from penstock.run.comm.grid import GRID_AXES, SEQUENCE, Grid

MOST_LINES = 16
WIDEST = 120
"""Characters of a line; cells that do not fit begin another one."""
BETWEEN = "   "
CELL = ("replica", "device")
"""Axes that tell cells apart."""


def mesh_picture(grid: Grid, per_machine: int) -> list[str]:
    """The ranks of all machines, each of which has so many, and a warning where a cell is on two of
    them; nothing where the mesh is a pipeline alone, on one machine."""
    large = [f"{axis} {grid.size(axis)}" for axis in grid.order if grid.size(axis) > 1]
    machines = range(-(-grid.ranks // per_machine))
    if len(large) < 2 and len(machines) < 2:
        return []
    drawn = [line for machine in machines for line in _machine(grid, machine, per_machine)]
    warned = [_torn(grid, axis, per_machine) for axis in _near(grid, per_machine)]
    return [f"mesh        {' x '.join(large)}", *_shortened(drawn), *filter(None, warned)]


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= MOST_LINES:
        return lines
    return [*lines[: MOST_LINES - 1], f"  and {len(lines) - MOST_LINES + 1} more lines"]


def _machine(grid: Grid, machine: int, per_machine: int) -> Iterator[str]:
    """The lines of one machine: one for each replica that has ranks there, or several."""
    here = range(machine * per_machine, min((machine + 1) * per_machine, grid.ranks))
    places = [grid.coordinates(rank) for rank in here]
    name = f"  machine {_aligned(machine, -(-grid.ranks // per_machine))}"
    for replica in sorted({place["replica"] for place in places}):
        number = _aligned(replica, grid.replica)
        head = name + (f"{BETWEEN}replica {number}" if grid.replica > 1 else "")
        devices = sorted({place["device"] for place in places if place["replica"] == replica})
        cells = [_cell(grid, replica, device, here) for device in devices]
        for line in _filled(cells, WIDEST - len(head)):
            yield head + line
            head = " " * len(head)
        name = " " * len(name)


def _cell(grid: Grid, replica: int, device: int, here: range) -> str:
    """The ranks of a device of a replica that are on this machine; all cells are equally wide."""
    place = {"replica": replica, "device": device}
    wide = len(str(grid.ranks - 1))
    groups = [
        [grid.rank({**place, **at, "tensor": t}) for t in range(grid.tensor)]
        for s in range(grid.sequence)
        for at in [dict(zip(SEQUENCE, divmod(s, grid.ulysses)))]
    ]
    texts = [[(str(rank) if rank in here else "-").rjust(wide) for rank in g] for g in groups]
    label = f"{device}:".ljust(len(str(grid.device - 1)) + 1)
    return f"{BETWEEN}device {label} [{' | '.join(map(' '.join, texts))}]"


def _filled(cells: list[str], room: int) -> Iterator[str]:
    """Lines of as many cells as there is room for."""
    columns = max(1, room // len(cells[0]))
    for first in range(0, len(cells), columns):
        yield "".join(cells[first : first + columns])


def _aligned(number: int, count: int) -> str:
    """A number out of so many, as wide as the last."""
    return str(number).ljust(len(str(count - 1)))


def _near(grid: Grid, per_machine: int) -> tuple[str, ...]:
    """Axes whose ranks should be on one machine. Where a cell is larger than a machine, the ranks
    that share tokens are those to spread."""
    fits = grid.sequence * grid.tensor <= per_machine
    return ("tensor", "sequence") if fits else ("tensor",)


def _torn(grid: Grid, axis: str, per_machine: int) -> str:
    """A warning of ranks along an axis that are not on one machine: the first two of them."""
    apart = _apart(grid, axis, per_machine)
    if not apart:
        return ""
    (first, second), place = apart[0], grid.coordinates(apart[0][0])
    replica = f" of replica {place['replica']}" if grid.replica > 1 else ""
    cells = {tuple(grid.coordinates(rank)[axis] for axis in CELL) for rank, _ in apart}
    more = f", the first of {len(cells)} such cells" if len(cells) > 1 else ""
    size = grid.sequence * grid.tensor
    usual = _apart(replace(grid, order=GRID_AXES), axis, per_machine)
    advice = f"cells of {size} do not fill machines of {per_machine}" if usual else "see mesh.order"
    return (
        f"warning: {axis} ranks {first} and {second} of device {place['device']}{replica} are on "
        f"different machines{more}: {advice}"
    )


def _apart(grid: Grid, axis: str, per_machine: int) -> list[tuple[int, int]]:
    """Neighbours along an axis that are on different machines."""
    pairs = (pair for ranks in grid.groups(axis) for pair in pairwise(ranks))
    return [pair for pair in pairs if pair[0] // per_machine != pair[1] // per_machine]
