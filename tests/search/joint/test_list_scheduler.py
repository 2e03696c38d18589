from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.check import check
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.search.joint.list_scheduler import (
    Listed,
    Policy,
    _list_schedule,
    list_schedule,
    urgency,
)
from penstock.search.joint.moves import CutAndHomes
from penstock.search.joint.pipeline import Pipeline
from penstock.search.joint.polish import fits, replay
from search.pipelines import HEAVY_HEAD, IN_A_ROW, WAVE, pipeline, replayed


def gradients_first(stages: Pipeline) -> Listed | None:
    """Gradients before forwards before weight gradients, without waiting."""
    return list_schedule(stages, urgency(stages, lead=100, late=1000, patience=0))


@pytest.mark.long
def test_section_6_the_order_alone_on_equal_layers() -> None:
    layout = CutAndHomes((4, 4, 4, 5), IN_A_ROW)
    stages = pipeline(HEAVY_HEAD, *layout, 8, 12)
    listed = gradients_first(stages)
    assert listed is not None
    timeline = replayed(HEAVY_HEAD, layout, stages, listed)
    assert timeline.makespan == listed.makespan == 204
    assert max(timeline.peak) <= 12


def test_section_6_cut_and_order_in_a_row() -> None:
    layout = CutAndHomes((5, 5, 5, 2), IN_A_ROW)
    stages = pipeline(HEAVY_HEAD, *layout, 8, 20)
    listed = gradients_first(stages)
    assert listed is not None
    timeline = replayed(HEAVY_HEAD, layout, stages, listed)
    assert (timeline.makespan, timeline.peak) == (145, (20, 20, 20, 4))


def test_section_6_cut_and_placement_with_full_backwards() -> None:
    layout = CutAndHomes((1, 1, 1, 1, 4, 4, 4, 1), WAVE)
    stages = pipeline(HEAVY_HEAD, *layout, 8, 20).fused
    listed = gradients_first(stages)
    assert listed is not None
    timeline = replayed(HEAVY_HEAD, layout, stages, listed)
    assert (timeline.makespan, timeline.peak) == (156, (8, 20, 20, 20))


def test_section_6_all_three_with_the_best_of_a_few_policies() -> None:
    layout = CutAndHomes((1, 2, 3, 2, 3, 2, 3, 1), WAVE)
    stages = pipeline(HEAVY_HEAD, *layout, 8, 24)
    policies = [
        urgency(stages, lead=lead, late=50, patience=patience)
        for lead, patience in product((8, 0, -1, -2), (0, 0.5))
    ]
    found = [listed.makespan for p in policies if (listed := list_schedule(stages, p))]
    assert min(found) <= 131


@pytest.mark.parametrize("p", range(1, 6))
def test_section_7_without_split_it_is_1f1b_on_equal_layers(p: int) -> None:
    stages = pipeline(f"{p}*1", (1,) * p, range(p), 8, p).fused
    within_1f1b = np.arange(p, 0, -1)
    capped = Pipeline(8, stages.device, stages.time, stages.act, stages.stash, within_1f1b)
    listed = gradients_first(capped)
    assert listed is not None
    assert listed.makespan == (8 + p - 1) * 3
    assert replay(capped, listed.order).peak.tolist() == within_1f1b.tolist()


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    """Any costs on any placement, with memory for little more than one microbatch."""
    devices, stages = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    placement = np.array(
        [*range(devices), *draw(st.lists(st.integers(0, devices - 1), max_size=6))]
    )
    placement = placement[np.array(draw(st.permutations(range(len(placement)))))]
    stages = len(placement)
    whole = st.integers(0, 5)
    column = st.lists(whole, min_size=stages, max_size=stages)
    time, act, stash = (np.array(draw(st.lists(column, min_size=3, max_size=3))) for _ in range(3))
    held = np.maximum(act[0], stash[0])
    one = np.bincount(placement, held, devices).astype(np.int64)
    m, hop, slices = draw(st.integers(1, 6)), draw(st.integers(0, 2)), draw(st.integers(1, 3))
    cap = slices * one + np.array(draw(st.lists(whole, min_size=devices, max_size=devices)))
    return Pipeline(m, placement, time, act[0], stash[0], cap, hop, slices)


@settings(max_examples=150, deadline=None)
@given(pipelines(), st.sampled_from([8, 0, -1, -9]), st.sampled_from([50, 1, -1]), st.floats(0, 2))
def test_memory_for_one_microbatch_is_enough_to_finish_and_never_exceeded(
    stages: Pipeline, lead: float, late: float, patience: float
) -> None:
    for pipe in (stages, stages.fused):
        listed = list_schedule(pipe, urgency(pipe, lead=lead, late=late, patience=patience))
        assert listed is not None, "a deadlock"
        played = replay(pipe, listed.order)
        assert fits(pipe, played)
        assert 0 <= played.makespan <= listed.makespan
        shape = Shape(pipe.devices, len(pipe.device), (pipe.slices,) * pipe.microbatches)
        schedule = Schedule.of("listed", shape, listed.order.lanes(pipe))
        assert check(schedule).findings == ()


def test_a_microbatch_that_does_not_fit_is_refused() -> None:
    stages = pipeline(HEAVY_HEAD, (5, 5, 5, 2), IN_A_ROW, 8, 4)
    assert gradients_first(stages) is None


def test_without_the_reservation_a_young_microbatch_would_block_an_old_one() -> None:
    """Two stages per device and memory for three: a third microbatch must not be let in."""
    stages = pipeline("4*1", (1, 1, 1, 1), (0, 1, 0, 1), 4, 3)
    forwards_first = Policy(np.array([[0.0] * 4, [1e6] * 4, [2e6] * 4]), 1.0)
    listed = list_schedule(stages, forwards_first)
    assert listed is not None
    assert replay(stages, listed.order).peak.tolist() == [3, 3]


def test_plain_and_compiled_list_the_same_order() -> None:
    stages = pipeline(HEAVY_HEAD, (1, 2, 3, 2, 3, 2, 3, 1), WAVE, 8, 24)
    policy = urgency(stages, lead=1, late=50, patience=0.5)
    columns = np.empty((2, 4, stages.ops), np.int64)
    for run, out in zip((_list_schedule.plain, _list_schedule.compiled), columns):
        run(
            stages.units, stages.slices, stages.device, stages.time, stages.held, stages.stash,
            stages.cap, stages.hop, policy.offset, policy.period, policy.patience,
            *stages.homes, *out,
        )  # fmt: skip
    assert np.array_equal(*columns)


def test_a_listing_that_is_not_shorter_is_not_written_down() -> None:
    stages = pipeline("4*1", (1,) * 4, IN_A_ROW, 8, 7)
    policy = urgency(stages, lead=8, late=50, patience=0)
    listed = list_schedule(stages, policy)
    assert listed is not None
    assert list_schedule(stages, policy, listed.makespan) is None
    assert Fraction(listed.makespan) >= 24
