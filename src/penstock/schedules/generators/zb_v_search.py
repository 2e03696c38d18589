"""The constructor of V-shaped zero-bubble orders for measured times.

On the V every device has a stage on the way down and one on the way up, and 2p chunk activations
are all its memory. The constructor warms the V up, then gives every device one backward and at most
one forward in each round, choosing the way whose input is there. Weight gradients fill whole gaps;
whether one more runs where a device would idle is a matter of two switches and of how much the
device idled in the run before, so that the constructor is run again as long as that helps. Source:
arXiv:2401.10241, section 6, and the facts of its public code where the paper leaves them open.
"""

from itertools import product
from typing import NamedTuple

from penstock.schedules.generators.board import Board, Budget
from penstock.schedules.generators.streams import PlainOp


class DelaySwitches(NamedTuple):
    """Where one more weight gradient may run although it delays the next op.

    Before input gradients of the way down it always may: they end on the first device.
    """

    before_up: bool
    """Before input gradients of the way up, with which a microbatch starts back."""
    before_forward: bool


def search_zb_v(devices: int, microbatches: int, budget: Budget) -> list[list[PlainOp]]:
    """The lanes with the shortest longest device among those of all settings."""
    boards = (
        _improved(devices, microbatches, budget, DelaySwitches(*setting))
        for setting in product((True, False), repeat=2)
    )
    return min(boards, key=lambda board: board.worst).lanes


def _improved(devices: int, microbatches: int, budget: Budget, switches: DelaySwitches) -> Board:
    """The best order of one setting: each run learns from the one before who may idle."""
    best = _Attempt(devices, microbatches, budget, switches, [0] * devices).construct()
    while True:
        spare = [best.worst - idle for idle in best.idle]
        again = _Attempt(devices, microbatches, budget, switches, spare).construct()
        if again.worst >= best.worst:
            return best
        best = again


class _Attempt:
    """One construction; device r has stage r on the way down and 2p - 1 - r on the way up."""

    def __init__(
        self,
        devices: int,
        microbatches: int,
        budget: Budget,
        switches: DelaySwitches,
        spare: list[int],
    ) -> None:
        self.devices = range(devices)
        self.board = Board([*self.devices, *reversed(self.devices)], microbatches, budget)
        self.switches = switches
        self.spare = spare
        """How much longer each device may idle, after the run before."""

    def construct(self) -> Board:
        self._fill_the_v()
        self._level_the_devices()
        for _ in range(2 * self.board.microbatches):
            self._backwards()
            self._forwards()
        for device in self.devices:
            self.board.flush(device)
        return self.board

    def _up(self, device: int) -> int:
        return len(self.board.home) - 1 - device

    def _fill_the_v(self) -> None:
        """The first microbatch goes down and up; more go down where it is waited for."""
        board, budget = self.board, self.board.budget
        for device in self.devices:
            board.place_forward(device)
        for device in reversed(self.devices):
            arrival = board.forward_arrival(self._up(device))
            room = budget.limit - (1 + 2 * device) * budget.act - budget.unit
            while (
                device < self.devices[-1]
                and board.held[device] <= room
                and board.clock[device] + budget.F <= arrival
                and board.forwards_left(device)
            ):
                for above in self.devices[: device + 1]:
                    board.place_forward(above)
            board.place_forward(self._up(device))

    def _level_the_devices(self) -> None:
        """Devices further down run forwards, down and up in turn, until all have as many."""
        descending = True
        for device in self.devices[1:]:
            while self._behind(device):
                for below in reversed(self.devices[device:]):
                    stage = below if descending else self._up(below)
                    if self.board.forwards_left(stage):
                        self.board.place_forward(stage)
                descending = not descending

    def _behind(self, device: int) -> bool:
        """Whether a device has run fewer forwards than the one above it."""
        board, above = self.board, device - 1
        up, up_above = board.forwards(self._up(device)), board.forwards(self._up(above))
        fewer = board.forwards(device) + up < board.forwards(above) + up_above
        return fewer or up <= up_above < board.microbatches

    def _backwards(self) -> None:
        """An input gradient on every device: the ways down, from the fold, before the ways up."""
        downs = [device for device in self.devices if self._goes_back_down(device)]
        for device in reversed(downs):
            self._backward(device, device, may_delay=True)
        for device in self.devices:
            if device not in downs:
                self._backward(device, self._up(device), may_delay=self.switches.before_up)

    def _goes_back_down(self, device: int) -> bool:
        """Whether the next input gradient is one of the way down, for a gradient that is there."""
        done = len(self.board.backward[device])
        done_up = len(self.board.backward[self._up(device)])
        there = len(self.board.backward[device + 1]) > done
        return done < done_up and (there or done_up == self.board.microbatches)

    def _backward(self, device: int, stage: int, *, may_delay: bool) -> None:
        self.board.room_for_backward(device)
        self._fill_gap(device, self.board.backward_arrival(stage), may_delay)
        self.board.place_backward(stage)

    def _forwards(self) -> None:
        for device in self.devices:
            stage = self._next_forward(device)
            if stage is not None:
                self.board.room_for_forward(device)
                self._fill_gap(
                    device, self.board.forward_arrival(stage), self.switches.before_forward
                )
                self.board.place_forward(stage)

    def _next_forward(self, device: int) -> int | None:
        """The stage on the way up if its input is there, else the one on the way down."""
        board, up, down = self.board, self._up(device), device
        if not board.forwards_left(up):
            return None
        if board.forwards(up) >= board.forwards(down):
            return down
        if board.forwards(up - 1) > board.forwards(up):
            return up
        there = down == 0 or board.forwards(down - 1) > board.forwards(down)
        return down if there and board.forwards_left(down) else None

    def _fill_gap(self, device: int, arrival: int, may_delay: bool) -> None:
        """Run weight gradients until something arrives, and one beyond it if idling costs more."""
        board = self.board
        gap = board.fill(device, arrival)
        affordable = max(board.worst, self.spare[device]) - board.idle[device]
        if may_delay and board.due[device] and gap > affordable:
            board.place_weight(device)
