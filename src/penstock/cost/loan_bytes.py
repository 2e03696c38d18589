"""What help with attention work needs on its two devices while their ops run.

Per layer of the op that is helped, with queries (or an output) of Q bytes, a log-sum-exp of S and
lent keys and values of K:

                       forward        backward
    comes to help      K + Q          K + 3 Q + S
    comes back         Q + S          K + Q

An op that lends has room for what comes back. One that helps has room for what comes next while it
does its own work, and for two layers while it computes for others. Both ops are at their highest in
other moments too, so only what sticks out above those counts. A member of a gang away from home
does nothing else; the one at home has the output of its own queries twice, until it is put beside
what comes back. What has been sent and waits for its receiver comes on top, as with all transfers.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from penstock.arch.config import ModelConfig
from penstock.arch.layers.record import wide_bytes
from penstock.arch.query_shares import share_of_queries
from penstock.core.gangs import helping_rows
from penstock.core.loans import GangShare, Help, helps_of
from penstock.core.meaning import ATTENDING
from penstock.core.schedule import Schedule
from penstock.cost.exchange import FORWARD_KINDS
from penstock.cost.passes import Counts


class LoanBytes(NamedTuple):
    """Bytes of one layer of a help."""

    forward: bool
    layers: int
    queries: int
    keys: int
    lse: int

    @classmethod
    def of(cls, model: ModelConfig, kind: str, layers: int, share: tuple[int, int]) -> "LoanBytes":
        """Of so many queries and keys."""
        tokens, lent = share
        return cls(
            kind in FORWARD_KINDS,
            layers,
            tokens * _query_bytes(model),
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


_Lengths = tuple[tuple[int, ...], ...]
"""Tokens of each slice of each microbatch."""


def with_loan_bytes(
    own: Counts, schedule: Schedule, model: ModelConfig, lengths: _Lengths, layers: Counts
) -> Counts:
    """The highest moment of each row with what help with attention adds to it; who only helps has
    none of its own."""
    if helps_of(schedule):
        own = own * ~helping_rows(schedule) + _loan_bytes(schedule, model, lengths, layers)
    return np.asarray(own, np.int64)


def _loan_bytes(
    schedule: Schedule, model: ModelConfig, lengths: _Lengths, layers: Counts
) -> Counts:
    """What help with attention adds to the highest moment of each row."""
    table, found = schedule.table, np.zeros(len(schedule.table), np.int64)
    ends = defaultdict[tuple[int, bool, bool], list[LoanBytes]](list)
    for each in helps_of(schedule):
        op, ganged = table.op(each.helped), isinstance(each.share, GangShare)
        if op.kind not in ATTENDING:
            continue
        share = _tokens(each, op.slice, lengths[op.mb])
        made = LoanBytes.of(model, op.kind, int(layers[op.stage]), share)
        ends[each.helped, ganged, False].append(made)
        ends[each.helping, ganged, True].append(made)
    for (row, ganged, helping), loans in ends.items():
        op, most = table.op(row), _MOST[ganged, helping]
        found[row] = max(0, most(loans, model, op.kind, lengths[op.mb][op.slice]))
    return found


def _tokens(each: Help, slice: int, lengths: tuple[int, ...]) -> tuple[int, int]:
    """How many queries and keys a help is about."""
    if isinstance(each.share, GangShare):
        queries = share_of_queries(sum(lengths[:slice]), lengths[slice], *each.share)
        return len(queries), queries.stop if queries else 0
    return lengths[slice], sum(lengths[each.share.start : each.share.stop])


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


def _sharing(loans: list[LoanBytes], model: ModelConfig, kind: str, tokens: int) -> int:
    """The member of a gang at home, whose output is put together."""
    own = tokens * _query_bytes(model) - sum(loan.queries for loan in loans)
    return _lending(loans, model, kind, tokens) + own


def _away(loans: list[LoanBytes], model: ModelConfig, kind: str, tokens: int) -> int:
    """A member of a gang that only helps."""
    following = sum(loan.comes for loan in loans if loan.layers > 1)
    return following + sum(loan.comes + loan.computed for loan in loans)


_MOST = {
    (False, False): _lending,
    (False, True): _helping,
    (True, False): _sharing,
    (True, True): _away,
}
"""By whether it is about a gang, and whether the op helps."""


def _query_bytes(model: ModelConfig) -> int:
    """The queries of a token."""
    return model.attention.query_width * model.element_bytes


def _rest_of_layer(model: ModelConfig) -> int:
    """What a token's forward saves of a layer once its attention is there."""
    return model.saved_bytes - model.attention.saved_bytes
