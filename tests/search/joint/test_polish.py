import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.search.joint.list_scheduler import list_schedule, urgency
from penstock.search.joint.moves import CutAndHomes
from penstock.search.joint.pipeline import Pipeline
from penstock.search.joint.polish import _polish, fits, polish, replay
from search.joint.test_list_scheduler import gradients_first, pipelines
from search.pipelines import HEAVY_HEAD, IN_A_ROW, WAVE, pipeline, replayed


def test_section_7_split_with_cap_p_is_3m_plus_p_minus_1() -> None:
    """List scheduling alone stops at 29."""
    stages = pipeline("4*1", (1,) * 4, IN_A_ROW, 8, 4)
    listed = gradients_first(stages)
    assert listed is not None
    assert listed.makespan == 29
    better = polish(stages, listed, rounds=500, seed=0)
    assert better.makespan == 3 * 8 + 4 - 1
    timeline = replayed("4*1", CutAndHomes((1,) * 4, IN_A_ROW), stages, better)
    assert timeline.makespan == 27
    assert max(timeline.peak) <= 4


def test_the_orders_of_section_6_are_improved_on() -> None:
    for layout, cap, least in (
        (CutAndHomes((5, 5, 5, 2), IN_A_ROW), 20, 135),
        (CutAndHomes((1, 2, 3, 2, 3, 2, 3, 1), WAVE), 24, 129),
    ):
        stages = pipeline(HEAVY_HEAD, *layout, 8, cap)
        listed = gradients_first(stages)
        assert listed is not None
        better = polish(stages, listed, rounds=1500, seed=1)
        timeline = replayed(HEAVY_HEAD, layout, stages, better)
        assert timeline.makespan == better.makespan <= least
        assert max(timeline.peak) <= cap


@settings(max_examples=60, deadline=None)
@given(pipelines(), st.integers(0, 2**31 - 1))
def test_what_comes_out_is_legal_and_never_worse(stages: Pipeline, seed: int) -> None:
    listed = list_schedule(stages, urgency(stages, lead=8, late=50, patience=0))
    assert listed is not None
    better = polish(stages, listed, rounds=30, seed=seed)
    assert better.makespan <= listed.makespan
    played = replay(stages, better.order)
    assert fits(stages, played)
    assert played.makespan <= better.makespan
    assert sorted(zip(*better.order[:3])) == sorted(zip(*listed.order[:3]))


def test_the_given_order_is_left_as_it_is() -> None:
    stages = pipeline("4*1", (1,) * 4, IN_A_ROW, 8, 4)
    listed = gradients_first(stages)
    assert listed is not None
    before = [column.copy() for column in listed.order]
    polish(stages, listed, rounds=100, seed=0)
    assert all(np.array_equal(a, b) for a, b in zip(before, listed.order))
    assert max(replay(stages, listed.order).peak) == 4


def test_an_order_that_comes_to_a_stop_is_found_out() -> None:
    stages = pipeline("2*1", (1, 1), (0, 1), 1, 9)
    listed = gradients_first(stages)
    assert listed is not None
    kind = listed.order.kind.copy()
    kind[[0, 1]] = kind[[1, 0]]
    assert replay(stages, listed.order._replace(kind=kind)).makespan == -1


def test_the_search_is_compiled_with_its_parts() -> None:
    assert _polish.compiled is not _polish.plain
