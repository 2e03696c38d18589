"""What a loan of attention work needs on its two devices while their ops run.

Per layer of the op that lends, with queries (or an output) of Q bytes, a log-sum-exp of S and lent
keys and values of K:

                       forward        backward
    comes to help      K + Q          K + 3 Q + S
    comes back         Q + S          K + Q

An op that lends has room for what comes back. One that helps has room for what comes next while it
does its own work, and for two layers while it computes for others. Both ops are at their highest in
other moments too, so only what sticks out above those counts. What has been sent and waits for its
receiver comes on top, as with all transfers.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from penstock.arch.config import ModelConfig
from penstock.arch.layers.record import wide_bytes
from penstock.core.ops import Op
from penstock.core.schedule import Loan, Schedule
from penstock.cost.exchange import FORWARD_KINDS
from penstock.cost.passes import Counts


class LoanBytes(NamedTuple):
    """Bytes of one layer of a loan."""

    forward: bool
    layers: int
    queries: int
    keys: int
    lse: int

    @classmethod
    def of(
        cls, model: ModelConfig, loan: Loan, slices: range, lengths: tuple[int, ...], layers: int
    ) -> "LoanBytes":
        """Of the slices with these numbers, which the op lends."""
        tokens, lent = lengths[loan.heavy.slice], sum(lengths[slices.start : slices.stop])
        return cls(
            loan.heavy.kind in FORWARD_KINDS,
            layers,
            tokens * model.attention.query_width * model.element_bytes,
            lent * model.attention.kv_bytes,
            tokens * model.heads * wide_bytes(model.element_bytes),
        )

    @property
    def comes(self) -> int:
        """To the device that helps."""
        return self.keys + (self.queries if self.forward else 3 * self.queries + self.lse)

    @property
    def returns(self) -> int:
        """To the op that lends, for as long as it computes its own part."""
        return self.queries + (self.lse if self.forward else self.keys)

    @property
    def computed(self) -> int:
        """A result, and the message that is made of it."""
        return 2 * self.returns


def loan_bytes(
    schedule: Schedule, model: ModelConfig, lengths: tuple[tuple[int, ...], ...], layers: Counts
) -> Counts:
    """What loans add to the highest moment of each row."""
    found = np.zeros(len(schedule.table), np.int64)
    ends = defaultdict[int, list[LoanBytes]](list), defaultdict[int, list[LoanBytes]](list)
    lent_before = Counter[Op]()
    for loan in schedule.loans:
        slices = range(lent_before[loan.heavy], lent_before[loan.heavy] + loan.slices)
        lent_before[loan.heavy] = slices.stop
        of_stage = int(layers[loan.heavy.stage])
        each = LoanBytes.of(model, loan, slices, lengths[loan.heavy.mb], of_stage)
        for end, op in zip(ends, loan[:2]):
            end[schedule.table.rows_by_op[op][0]].append(each)
    for end, most in zip(ends, (_lending, _helping)):
        for row, loans in end.items():
            op = schedule.table.op(row)
            found[row] = max(0, most(loans, model, op.kind, lengths[op.mb][op.slice]))
    return found


def _lending(loans: list[LoanBytes], model: ModelConfig, kind: str, tokens: int) -> int:
    """A forward that waits has not yet what the rest of its layer saves."""
    rest = _rest_of_layer(model) * tokens if kind in FORWARD_KINDS else 0
    return sum(loan.returns for loan in loans) - rest


def _helping(loans: list[LoanBytes], model: ModelConfig, kind: str, tokens: int) -> int:
    """At its highest while it computes for others, in the last layer or in one before it; a
    backward also beside its own attention."""
    comes, computed = sum(loan.comes for loan in loans), max(loan.computed for loan in loans)
    following = comes * (max(loan.layers for loan in loans) > 1)
    if kind in FORWARD_KINDS:
        rest, layer = _rest_of_layer(model) * tokens, model.saved_bytes * tokens
        return max(comes + computed - rest, comes + following + computed - rest - layer)
    attention = 2 * (model.attention.query_width * model.element_bytes + model.kv_bytes) * tokens
    return max(following, comes + following + computed - attention * (kind in "BI"))


def _rest_of_layer(model: ModelConfig) -> int:
    """What a token's forward saves of a layer once its attention is there."""
    return model.saved_bytes - model.attention.saved_bytes
