"""Ops, their text form, and shapes."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loops import each
from penstock.core.ops import KINDS, Op, parse_op
from penstock.core.shape import MAX_OPS, Shape
from penstock.core.table import Table
from penstock.errors import FormatError, PenstockError, ShapeError

ops = st.builds(
    Op, st.sampled_from(sorted(KINDS)), st.integers(0, 99), st.integers(0, 99), st.integers(0, 9)
)


@given(ops)
def test_an_op_reads_back_from_its_text(op: Op) -> None:
    assert parse_op(str(op)) == op


@pytest.mark.parametrize(
    ("op", "text"),
    [(Op("F", 2, 0, 1), "2F0.1"), (Op("B", 0, 12), "0B12"), (Op("W", 3, 1, 0), "3W1")],
)
def test_the_slice_is_left_out_when_it_is_the_first(op: Op, text: str) -> None:
    assert str(op) == text


@pytest.mark.parametrize("text", ["", "F0", "2X0", "2F", "2F0.", "-1F0", "2f0", "2F0.1.2", "2F0 "])
def test_what_is_not_an_op_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_op(text)
    assert "for example 2F0.1" in caught.value.hint


@given(st.lists(st.lists(ops, min_size=1, max_size=8), min_size=1, max_size=4))
def test_a_table_gives_its_lanes_back(lanes: list[list[Op]]) -> None:
    table = Table.of([(device, "compute", lane) for device, lane in enumerate(lanes)])
    assert [lane for _, _, lane in table.lanes()] == lanes
    assert [table.op(row) for row in range(len(table))] == [op for lane in lanes for op in lane]


def test_units_number_the_slices_of_all_microbatches_through() -> None:
    shape = Shape(1, 1, (2, 1, 3))
    ops = [Op("F", 0, mb, slice) for mb, count in enumerate((2, 1, 3)) for slice in range(count)]
    table = Table.of([(0, "compute", [*ops, Op("F", 0, 1, 1), Op("F", 0, 3), Op("U", 0, 0)])])
    assert table.units(shape).tolist() == [0, 1, 2, 3, 4, 5, -1, -1, -1]


def test_shares_default_to_equal_parts() -> None:
    shape = Shape.even(devices=4, microbatches=3, chunks=2, slices=4)
    assert (shape.stages, shape.units, shape.chunks) == (8, 12, 2)
    assert shape.share_of_stage(5) == Fraction(1, 2)
    assert shape.share_of_slice(2, 3) == Fraction(1, 4)


@each(
    ("change", "word"),
    [
        ({"devices": 0}, "devices is 0"),
        ({"devices": True}, "devices is True"),
        ({"devices": 3}, "3 devices cannot share 2"),
        ({"slices": ()}, "microbatches is 0"),
        ({"slices": (1, 0)}, "slices is 0"),
        ({"copies": 0}, "copies is 0"),
        ({"slices": (MAX_OPS,)}, "above the limit"),
        ({"stage_share": (Fraction(1),)}, "stage_share has 1"),
        ({"kind_share": (("W", (Fraction(1),)),)}, "kind_share W has 1 entries for 2"),
        ({"kind_share": (("kv", (Fraction(1),) * 2),)}, "kind_share has 'kv'"),
        ({"kind_share": (("W", (Fraction(-1),) * 2),)}, "a share, the bytes"),
        ({"slice_share": ((Fraction(1),), ())}, "shares for microbatch 1"),
        ({"boundary_bytes": (1, 2)}, "boundary_bytes has 2"),
        ({"weightless": frozenset({2})}, "weightless stage 2"),
        ({"skips": ((1, 0),)}, "skip edge 1-0"),
        ({"skips": ((0, 1), (0, 1))}, "the skip edge 0-1 is given 2 times"),
        ({"ties": ((0, 1), (0, 1))}, "the tie 0-1 is given 2 times"),
        ({"loss": "X"}, "loss='X'"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_with_a_hint(change: dict, word: str) -> None:
    fields = {"devices": 2, "stages": 2, "slices": (1, 1)} | change
    with pytest.raises(ShapeError, match=word) as caught:
        Shape(**fields)
    assert caught.value.hint
    assert isinstance(caught.value, PenstockError)
