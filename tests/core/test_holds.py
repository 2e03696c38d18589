"""What ops are held back for, as columns: the same to whoever looks at it as objects."""

from dataclasses import replace

from penstock.core.holds import Holds, held_too
from penstock.core.named_rows import after_rows
from penstock.core.ops import Op
from penstock.core.schedule import After
from penstock.core.table import known_columns
from penstock.schedules import build
from penstock.transform import shard

AFTER = (After(Op("F", 0, 1), Op("B", 0, 0)), After(Op("B", 1, 1), Op("F", 1, 0)))


def columns(*after: After) -> Holds:
    return Holds(*(known_columns(ops) for ops in zip(*after)))


def test_columns_are_the_objects_that_they_stand_for() -> None:
    holds = columns(*AFTER)
    assert len(holds) == 2
    assert tuple(holds) == AFTER
    assert (holds[0], holds[1:]) == (AFTER[0], AFTER[1:])
    assert holds == AFTER
    assert holds == AFTER
    assert holds != AFTER[:1]
    assert (hash(holds), repr(holds)) == (hash(AFTER), repr(AFTER))


def test_more_comes_behind_what_is_there_and_nothing_is_there_twice() -> None:
    first, second = AFTER
    assert held_too((), columns(second)) == (second,)
    assert held_too(columns(first), columns(second)) == AFTER
    assert held_too((first, first), columns(second)) == AFTER


def test_a_schedule_is_the_same_with_columns_and_with_objects() -> None:
    order = build("interleaved", devices=2, microbatches=4, chunks=2)
    sharded = shard(order, weights=2, gradients=2)
    assert isinstance(sharded.after, Holds)
    spelled_out = replace(sharded, after=tuple(sharded.after), derived={})
    assert spelled_out == sharded
    assert after_rows(spelled_out).tolist() == after_rows(sharded).tolist()
