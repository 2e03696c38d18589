"""Tables that are put together from columns."""

import numpy as np

from penstock.core.ops import STREAMS, Op
from penstock.core.table import Table, known_columns

OPS = [Op("Z", 1, 0), Op("F", 0, 1), Op("F", 0, 0), Op("F", 1, 0)]


def test_ops_of_a_lane_keep_their_order_and_lanes_have_theirs() -> None:
    device = np.array([1, 0, 0, 1], np.int32)
    streams = [STREAMS.index(name) for name in ("collective", "compute", "compute", "compute")]
    table = Table.of_columns(known_columns(OPS), device, np.array(streams, np.int32))
    zero, one, gathered = (0, "compute", OPS[1:3]), (1, "compute", OPS[3:]), OPS[:1]
    assert [*table.lanes()] == [zero, one, (1, "collective", gathered)]
    assert table.same(Table.of(table.lanes()))
    assert table.lanes_of("compute").tolist() == [0, 1]
    assert table.stream.tolist() == [0, 0, 0, STREAMS.index("collective")]


def test_more_ops_stand_behind_those_of_their_lane() -> None:
    table = Table.of([(0, "compute", OPS[1:2]), (1, "compute", OPS[3:])])
    more = Table.of([(0, "compute", OPS[2:3]), (0, "copy", OPS[:1])])
    lanes = [(0, "compute", OPS[1:3]), (0, "copy", OPS[:1]), (1, "compute", OPS[3:])]
    assert table.followed_by(more).same(Table.of(lanes))


def test_what_is_no_op_is_in_no_row() -> None:
    table = Table.of([(0, "compute", OPS[1:3])])
    strange = [Op("?", 0, 1), Op("FF", 0, 1), Op("F", 0, 2**40), Op("F", 0, 0)]
    assert table.first_rows(strange).tolist() == [-1, -1, -1, 1]
