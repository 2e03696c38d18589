import gc
from fractions import Fraction
from typing import Any

import pytest

from loops import each_case
from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.schedules import Case, Need, Option, Spec, build, find, registry, schedule

GROUP = Option("group", int, default=lambda c: c.p, text="a number of microbatches")
SHARE = Option("share", Fraction, default=lambda c: Fraction(1, 2), text="a share", least=0)


@schedule(
    name="sample",
    title="a sample",
    paper="",
    chunks=None,
    options=(GROUP, SHARE),
    needs=(
        Need(lambda c: c.m >= c[GROUP], "m >= group", "raise -m to {group} or more"),
        Need(lambda c: c.v > 1, "v > 1", "raise -v above {v}"),
    ),
    cases=(Case(2, 2, v=2),),
)
def sample(shape: Shape, group: int, share: Fraction) -> Lanes:
    return [[("F", r, group, 0)] for r in range(shape.devices)]


def refused(**request: Any) -> ShapeError:
    with pytest.raises(ShapeError) as refusal:
        sample.case(**{"devices": 2, "microbatches": 4, **request})
    return refusal.value


def test_defaults_fill_a_request() -> None:
    case = sample.case(2, 4)
    assert (case.p, case.m, case.v, case.k) == (2, 4, 2, 1)
    assert case.options == {"group": 2, "share": Fraction(1, 2)}


def test_options_are_read_from_text_and_from_numbers() -> None:
    case = sample.case(2, 4, options={"group": "3", "share": Fraction(1, 3)})
    assert (case[GROUP], case[SHARE]) == (3, Fraction(1, 3))


def test_all_broken_needs_are_told_at_once_with_what_to_do() -> None:
    refusal = refused(chunks=1, options={"group": 9})
    assert refusal.message == (
        "sample -p 2 -m 4 -v 1 -k 1 -o group=9 -o share=1/2: "
        "it needs that m >= group; and that v > 1"
    )
    assert refusal.hint == "raise -m to 9 or more; raise -v above 1"


@each_case(
    ("value", "message"),
    [
        ("x", "option group=x cannot be read"),
        ("", "option group= cannot be read"),
        ("1.5", "option group=1.5 cannot be read"),
        (1.5, "option group=1.5 cannot be read"),
        (True, "option group=True cannot be read"),
        ([1], "option group=[1] cannot be read"),
        ("0", "option group=0 is below 1"),
        (-3, "option group=-3 is below 1"),
    ],
)
def test_a_value_that_is_no_number_is_refused(value: Any, message: str) -> None:
    refusal = refused(options={"group": value})
    assert refusal.message == f"sample: {message}"
    assert refusal.hint.startswith("group is a number of microbatches")


def test_a_share_of_nothing_is_refused() -> None:
    assert "share=1/0 cannot be read" in refused(options={"share": "1/0"}).message


def test_a_foreign_option_is_refused_with_the_nearest_name() -> None:
    refusal = refused(options={"groups": 2})
    assert refusal.message == "sample has no option 'groups'"
    assert refusal.hint == "did you mean 'group'?"


@each_case(
    ("request_", "message"),
    [
        ({"devices": 0}, "devices is 0, but must be an integer of at least 1"),
        ({"microbatches": -1}, "microbatches is -1, but must be an integer of at least 1"),
        ({"chunks": 0}, "chunks is 0, but must be an integer of at least 1"),
        ({"slices": 2}, "sample does not cut sequences into slices, but -k 2 was given"),
        ({"slices": 0}, "sample does not cut sequences into slices, but -k 0 was given"),
        ({"devices": 10**9}, "1,000,000,000 devices is deeper than 4,096"),
        ({"microbatches": 10**9}, "above the limit of 20,000,000"),
    ],
)
def test_impossible_numbers_are_refused(request_: dict[str, int], message: str) -> None:
    refusal = refused(**request_)
    assert message in refusal.message
    assert refusal.hint


def test_fixed_chunks_accept_only_themselves() -> None:
    spec = find("zb-v")
    assert spec.case(2, 3, chunks=2) == spec.case(2, 3)
    with pytest.raises(ShapeError, match="has 2 chunk") as refusal:
        spec.case(2, 3, chunks=1)
    assert refusal.value.hint == "leave -v out, or give -v 2"


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ShapeError, match="no schedule is called 'seq1f1bi'") as refusal:
        build("seq1f1bi", devices=2, microbatches=2)
    assert "did you mean" in refusal.value.hint


def test_the_registry_holds_records_under_their_names() -> None:
    assert all(isinstance(spec, Spec) and spec.name == name for name, spec in registry().items())


def test_a_full_backward_costs_its_halves_and_a_step_everything() -> None:
    case = Case(1, 1, F=Fraction(3), I=Fraction(4), W=Fraction(2))
    assert (case.B, case.step) == (6, 9)


def test_building_leaves_the_garbage_collector_as_it_was() -> None:
    assert gc.isenabled()
    build("gpipe", devices=2, microbatches=2)
    assert gc.isenabled()
    gc.disable()
    try:
        build("gpipe", devices=2, microbatches=2)
        assert not gc.isenabled()
    finally:
        gc.enable()
