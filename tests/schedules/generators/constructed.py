"""Any row that the constructors of zero-bubble schedules can be asked for."""

from typing import NamedTuple

from hypothesis import strategies as st

from penstock.schedules.generators.board import Board, Budget
from penstock.schedules.generators.zero_bubble_search import Switches, construct


class Row(NamedTuple):
    """One stage per device, at the times of F, I and W; `alive` microbatches have room."""

    times: tuple[int, int, int]
    hop: int
    p: int
    m: int
    alive: int
    switches: tuple[bool, bool, bool]

    def budget(self, limit: int) -> Budget:
        """An activation has size 2, what it leaves for W size 1."""
        return Budget(*self.times, self.hop, 2, 1, limit)

    def construct(self) -> Board:
        return construct(self.p, self.m, self.budget(2 * self.alive), Switches(*self.switches))


rows = st.builds(
    Row,
    times=st.tuples(*[st.integers(1, 9)] * 3),
    hop=st.integers(0, 5),
    p=st.integers(1, 5),
    m=st.integers(1, 9),
    alive=st.integers(1, 12),
    switches=st.tuples(*[st.booleans()] * 3),
)
