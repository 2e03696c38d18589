"""The constraint program of a pipeline step: when every op starts, and which copies are made.

Ops are intervals that do not overlap on their lane; what reads waits for what writes; memory is a
reservoir that is filled when a buffer is taken and drained when it is given back, at one time first
drained; a copy is an interval that may be absent. After optpipe (arXiv:2510.05186) and the integer
program of arXiv:2401.10241, section 5 of the appendix, with intervals in place of big constants.
"""

from itertools import pairwise
from typing import Any

from penstock.errors import ShapeError
from penstock.search.joint.net import Net
from penstock.transform.offload import Channels, Window


def constraint_solver() -> Any:
    """OR-Tools' constraint programming module, or an error that says how to get it."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise ShapeError(
            "the exact search needs OR-Tools, which is not installed",
            hint='install it with pip install "penstock[solve]"',
        ) from None
    return cp_model


class Model:
    """Variables by row of the net; copies that may be left out have a literal that says so."""

    def __init__(self, net: Net, windows: dict[int, Window]) -> None:
        """The ops of a net, and times that are known to work, where the search begins."""
        self.net = net
        self.program = constraint_solver().CpModel()
        horizon = max(window.end for window in windows.values()) + max(net.heads)
        tails = [tail + length for tail, length in zip(net.tails, net.length)]
        self.start: list[Any] = [
            self.program.new_int_var(head, max(head, horizon - tail), "")
            for head, tail in zip(net.heads, tails)
        ]
        self.made: dict[int, Any] = {}
        """By row of a copy: whether it is made. An offload and its load share the literal."""
        for rows in net.copies.values():
            self.made |= dict.fromkeys(rows, self.program.new_bool_var(""))
        self._interval = [self._make_interval(row) for row in range(len(net.length))]
        self._hint(windows)

    def _hint(self, windows: dict[int, Window]) -> None:
        for row, window in windows.items():
            self.program.add_hint(self.start[row], window.start)
        for offload, load in self.net.copies.values():
            self.program.add_hint(self.made[offload], load in windows)

    def _make_interval(self, row: int) -> Any:
        start, length = self.start[row], self.net.length[row]
        if row in self.made:
            return self.program.new_optional_fixed_size_interval_var(
                start, length, self.made[row], ""
            )
        return self.program.new_fixed_size_interval_var(start, length, "")

    def end(self, row: int) -> Any:
        return self.start[row] + self.net.length[row]

    def follow(self) -> None:
        """What reads waits for what writes; ops that are alike run in order."""
        for earlier, later, delay in self.net.waits:
            kept = self.program.add(self.start[later] >= self.end(earlier) + delay)
            literals = {
                id(self.made[row]): self.made[row] for row in (earlier, later) if row in self.made
            }
            if literals:
                kept.only_enforce_if(*literals.values())
        for chain in self.net.chains():
            for earlier, later in pairwise(chain):
                self.program.add(self.start[later] >= self.end(earlier))

    def take_turns(self, channels: Channels) -> None:
        """One op at a time on every compute lane, one copy at a time on every channel."""
        for lane in self.net.compute:
            self.program.add_no_overlap([self._interval[row] for row in lane])
        shared = {device for devices in channels for device in devices}
        alone = [(device,) for device in range(len(self.net.compute)) if device not in shared]
        for devices in (*channels, *alone):
            copies = [row for row in self.made if self.net.device[row] in devices]
            self.program.add_no_overlap([self._interval[row] for row in copies])

    def hold_at_most(self, limit: int) -> None:
        """No device holds more than `limit` grains at any time."""
        for device in range(len(self.net.compute)):
            times, changes, active = [], [], []
            for row, at in enumerate(self.net.device):
                both = (
                    (self.start[row], self.net.takes[row]),
                    (self.end(row), self.net.frees[row]),
                )
                for time, change in both if at == device else ():
                    if change:
                        times.append(time)
                        changes.append(change)
                        active.append(self.made.get(row, 1))
            least = -sum(map(abs, changes))  # drains before it fills at one time: no lower limit
            if times:  # the solver refuses an empty one
                self.program.add_reservoir_constraint_with_active(
                    times, changes, active, least, limit
                )

    def minimise(self, begins: list[int] | None, most: int) -> None:
        """Make the longest device short, counted from given times or from its first op."""
        longest = self.program.new_int_var(0, most, "")
        for device, lane in enumerate(self.net.compute):
            if begins is None:
                begin = self.program.new_int_var(0, most, "")
                self.program.add_min_equality(begin, [self.start[row] for row in lane])
            else:
                begin = begins[device]
            for row in lane:
                self.program.add(longest >= self.end(row) - begin)
        self.program.minimize(longest * self._weight + sum(self.made.values()))

    @property
    def _weight(self) -> int:
        """What a tick counts beside copies: more than all of them."""
        return len(self.made) + 1

    def run(self, effort: float) -> tuple[dict[int, Window], int]:
        """Windows of the best order that is found, none where there is none; and what no order can
        be below."""
        solver = constraint_solver().CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        solver.parameters.max_deterministic_time = effort
        # The model is tight as it stands: presolving took four times as long as the search.
        solver.parameters.cp_model_presolve = False
        solver.parameters.linearization_level = 0
        status = solver.status_name(solver.solve(self.program))
        if status not in ("OPTIMAL", "FEASIBLE"):
            return {}, 0
        rows = range(len(self.start))
        made = [row for row in rows if row not in self.made or solver.value(self.made[row])]
        starts = {row: solver.value(self.start[row]) for row in made}
        windows = {row: Window(at, at + self.net.length[row]) for row, at in starts.items()}
        return windows, round(solver.best_objective_bound) // self._weight
