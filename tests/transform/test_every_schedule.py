"""Any chain of transforms over any registered schedule is proven and can be simulated."""

import re
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loops import each
from penstock.check import check
from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.schedules import registry
from penstock.sim import simulate
from penstock.transform import (
    cut_slices,
    group,
    merge_backward,
    recompute_all,
    recompute_all_but_last_slices,
    recompute_stages,
    recompute_without_attention,
    split_backward,
)
from penstock.transform import spread_vocabulary as spread
from transform.samples import SAMPLES, Sample

TRANSFORMS: dict[str, Callable[[Schedule], Schedule]] = {
    "split": split_backward,
    "merge": merge_backward,
    "cut 2": lambda schedule: cut_slices(schedule, 2),
    "cut 1:2:3": lambda schedule: cut_slices(
        schedule, 3, shares=[Fraction(1, 6), Fraction(2, 6), Fraction(3, 6)]
    ),
    "group 2": lambda schedule: group(schedule, 2),
    "short group": lambda schedule: group(
        schedule, 3, microbatches=3 * schedule.shape.microbatches - 2
    ),
    "recompute": recompute_all,
    "recompute first": lambda schedule: recompute_stages(schedule, {0}),
    "recompute without attention": lambda schedule: (
        recompute_without_attention(schedule) if schedule.shape.weightless else schedule
    ),
    "recompute early": lambda schedule: recompute_all_but_last_slices(schedule, 1),
    "vocabulary": lambda schedule: schedule if schedule.shape.shards else spread(schedule),
}


@st.composite
def built(draw: st.DrawFn) -> Schedule:
    """A registered schedule of a small shape inside its needs."""
    spec = draw(st.sampled_from(sorted(registry().values(), key=lambda spec: spec.name)))
    numbers = st.integers(1, 4)
    p, m, v, k = draw(numbers), draw(st.integers(1, 8)), draw(numbers), draw(numbers)
    try:
        case = spec.case(p, m, spec.chunks or v, k if spec.sliced else 1)
    except ShapeError:
        assume(False)
    return spec.build(case)


@given(built(), st.lists(st.sampled_from(sorted(TRANSFORMS)), min_size=1, max_size=3))
@settings(deadline=None, max_examples=150)
def test_a_transformed_schedule_is_proven(base: Schedule, chain: list[str]) -> None:
    schedule = base
    try:
        for name in chain:
            schedule = TRANSFORMS[name](schedule)
    except ShapeError as refusal:
        if not re.search(r"(lends|offloads) .*\nhint: ", str(refusal)):
            raise
        assume(False)
    assert check(schedule).findings == ()
    timeline = simulate(schedule)
    assert timeline.makespan >= max(timeline.work)


@given(built())
@settings(deadline=None)
def test_splitting_and_merging_leave_what_merging_alone_leaves(base: Schedule) -> None:
    assert merge_backward(split_backward(base)) == merge_backward(base)


@given(built())
@settings(deadline=None)
def test_splitting_never_makes_a_plain_schedule_slower(base: Schedule) -> None:
    assume(not base.pairs)  # a braided backward delivers its gradient when the pair ends
    assert simulate(split_backward(base)).makespan <= simulate(base).makespan


CUTS, RECOMPUTES = ("cut 2", "cut 1:2:3"), ("recompute", "recompute first")
REFUSED = {
    *(("lending", name) for name in CUTS),
    *(("offloaded", name) for name in RECOMPUTES),
    ("gathered", "vocabulary"),
}
"""Loans count whole slices; an offload needs what a forward keeps; shards
of the vocabulary have no gathers where those of stages are there already."""


@each("sample", SAMPLES, ids=lambda sample: sample.__name__)
@each("name", sorted(TRANSFORMS))
def test_annotations_are_kept_or_refused_by_name(name: str, sample: Sample) -> None:
    if (sample.__name__, name) in REFUSED:
        with pytest.raises(ShapeError, match=r"(lends|offloads|ops of kind G, Z).*\nhint: "):
            TRANSFORMS[name](sample())
    else:
        assert check(TRANSFORMS[name](sample())).findings == ()
