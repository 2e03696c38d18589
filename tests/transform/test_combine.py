"""Changes by name: made in one order, and refused by name where there is none."""

from itertools import permutations

import pytest

from penstock.check import check
from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.transform import (
    CHANGES,
    combine,
    cut_slices,
    offload_stages,
    recompute_all,
    spread_vocabulary,
)


def same_order(one: Schedule, other: Schedule) -> bool:
    return [*one.table.lanes()] == [*other.table.lanes()] and one.after == other.after


def test_the_order_in_which_changes_are_named_does_not_matter() -> None:
    schedule = build("1f1b", devices=2, microbatches=3)
    first, *others = (combine(schedule, names) for names in permutations(CHANGES))
    assert all(same_order(other, first) for other in others)
    assert first.name == "1f1b+slices2+recompute+vocabulary+offload"


def test_changes_are_the_transforms_of_their_names() -> None:
    schedule = build("gpipe", devices=2, microbatches=3)
    by_hand = {
        "slices": cut_slices(schedule, 2),
        "recompute": recompute_all(schedule),
        "vocabulary": spread_vocabulary(schedule),
        "offload": offload_stages(schedule, [0, 1]),
    }
    assert by_hand.keys() == CHANGES.keys()
    for name, changed in by_hand.items():
        assert same_order(combine(schedule, [name]), changed)
        assert check(changed).proven


def test_nothing_is_changed_without_a_name() -> None:
    schedule = build("gpipe", devices=2, microbatches=3)
    assert combine(schedule, []) is schedule


def test_a_name_that_no_change_has_is_refused_with_the_nearest() -> None:
    with pytest.raises(ShapeError, match="'recompte'") as refusal:
        combine(build("gpipe", devices=1, microbatches=1), ["recompte"])
    assert refusal.value.hint == "did you mean 'recompute'?"
