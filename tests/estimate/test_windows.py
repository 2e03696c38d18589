"""Layers with a sliding window take as long as what they see, on whichever stage they are."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from loops import each
from penstock.arch.config import with_layers
from penstock.arch.presets import MODELS
from penstock.cost.op_collectives import LAYER_PARTS
from penstock.estimate.layer_seconds import UnitTokens
from penstock.estimate.layer_sorts import layer_sorts
from penstock.estimate.layer_times import LayerTimes
from penstock.estimate.layout_cost import LayoutCost
from penstock.estimate.price import estimate, estimate_step, layout_cost
from penstock.estimate.request import layout_from
from penstock.estimate.step_schedule import step_schedule

TOKENS = 8192
GEMMA = MODELS["gemma3-1b"]
"""26 layers, of which every sixth sees all keys and the others 512."""
FULL, NEAR = TOKENS * TOKENS / 2, TOKENS * 512 - 512 * 512 / 2
"""Pairs of a layer."""


def _row(**changes: Any) -> dict[str, Any]:
    found = {
        "model": "gemma3-1b",
        "cluster": "h100:13",
        "tokens": TOKENS,
        "batch_tokens": 26 * TOKENS,
        "mesh": "pipeline=13",
        "schedule": "1f1b",
    }
    return found | changes


def _of_stages(kind: str, **changes: Any) -> tuple[LayoutCost, NDArray[np.float64]]:
    """What one op of a kind computes and waits for, on each stage."""
    layout = layout_from(_row(**changes))
    step = step_schedule(layout)
    cost, table = layout_cost(layout, step), step.schedule.table
    ticks, tick = cost.durations(step.schedule)
    rows = np.flatnonzero(table.of_kinds(kind))
    found = np.zeros(step.schedule.shape.stages)
    found[table.stage[rows]] = ticks[rows] * float(tick)
    return cost, found


def _attention(times: LayerTimes, pairs: float) -> NDArray[np.float64]:
    """Forward and backward of a layer that sees so many."""
    window = GEMMA.window if pairs == NEAR else None
    times = replace(times, part=replace(times.part, window=window, window_pattern=()))
    unit = UnitTokens(TOKENS, TOKENS, TOKENS, pairs, float(TOKENS * TOKENS))
    return np.array(times.attention_seconds(unit))


@each("schedule", ["1f1b", "helixpipe"])
def test_a_stage_with_a_layer_that_sees_all_keys_takes_longer(schedule: str) -> None:
    """The sixth layer is the second one of the third stage; or it has the attention of a stage by
    itself."""
    sixth, other = (2, 1) if schedule == "1f1b" else (11, 9)
    for number, kind in enumerate("FB"):
        cost, took = _of_stages(kind, schedule=schedule)
        more = _attention(cost.times, FULL) - _attention(cost.times, NEAR)
        assert took[sixth] - took[other] == pytest.approx(more[number], rel=1e-6)


def test_the_first_layers_of_a_stage_are_those_that_run_again() -> None:
    """Of stages of six layers each has one that sees all keys, and at another place."""
    layers = [5, 6, 6, 6, 3]
    sizes = {"mesh": "pipeline=5", "cluster": "h100:5", "layers": layers}
    _, once = _of_stages("B", **sizes)
    cost, again = _of_stages("B", **sizes, recompute="layers=1")
    more = _attention(cost.times, FULL) - _attention(cost.times, NEAR)
    assert (again - once)[1] - (again - once)[0] == pytest.approx(more[0], rel=1e-6)
    shifted = sizes | {"layers": [4, 6, 6, 6, 4]}
    _, once = _of_stages("B", **shifted)
    _, other = _of_stages("B", **shifted, recompute="layers=1")
    assert (other - once)[1] == pytest.approx((other - once)[0], rel=1e-6)


def test_layers_that_run_again_send_what_their_windows_ask_for() -> None:
    """In a ring, attention of fewer pairs hides less of what it sends."""
    sizes = {"mesh": "pipeline=2,sequence=2,ring=2", "cluster": "h100:4"}
    cost, _ = _of_stages("B", **sizes, recompute="layers=13")
    for stage in range(2):
        sent = [part for part in cost._parts("F", stage) if part[1].name == LAYER_PARTS["F"]]
        assert {each.window: count for count, each in sent} == {512: 11, None: 2}
        assert [part for part in cost._parts("B", stage) if part in sent] == sent


def test_balanced_stages_have_fewer_layers_where_these_see_all_keys() -> None:
    found = layout_from(
        _row(
            mesh="pipeline=4",
            cluster="h100:4",
            layers="balanced",
            tokens=32768,
            batch_tokens=131072,
        )
    )
    assert found.layers[-1] < min(found.layers[:-1])


def test_layers_of_other_windows_are_of_another_sort() -> None:
    sorts = layer_sorts(GEMMA)
    assert sorts.counts(range(26)) == (22, 4)
    assert [sorts.small.has_window(layer) for layer in sorts.shown_by] == [True, False]
    assert layer_sorts(MODELS["mistral-7b-v0.1"]).alike


def test_attention_that_is_not_fused_computes_and_keeps_what_a_window_hides() -> None:
    """Products and probabilities are of all pairs, as without a window."""
    given = {"attention": "unfused", "cluster": "h100:4", "mesh": "pipeline=4", "tokens": 16384}
    given |= {"batch_tokens": 65536}
    with_window, without = (
        _of_stages("B", **given, model=name) for name in ("mistral-7b-v0.1", "mistral-7b-v0.3")
    )
    assert with_window[1][1] == pytest.approx(without[1][1], rel=1e-9)
    kept = [
        estimate(layout_from(_row(**given, model=name))).memory[1].activations
        for name in ("mistral-7b-v0.1", "mistral-7b-v0.3")
    ]
    assert kept[0] == kept[1]


def test_scores_with_a_bound_are_computed_in_the_triangles_of_a_window() -> None:
    """8,192 queries that see 4,096 keys are three triangles of that size, of four without it."""
    sizes = {"cluster": "h100:21", "mesh": "pipeline=21", "batch_tokens": 21 * TOKENS}
    cost, _ = _of_stages("F", model="gemma2-9b", **sizes)
    full, near = (
        own.times(cost.times).attention_seconds(cost.units_of(own.workload)[0]).forward
        for own in cost.kinds_of_layers
    )
    assert near == pytest.approx(3 / 4 * full, rel=1e-9)


def test_fewer_layers_than_a_pattern_has_may_all_have_the_window() -> None:
    """Five layers, of which the sixth would see all keys."""
    layout, few = layout_from(_row(cluster="h100:1", mesh="pipeline=1")), with_layers(GEMMA, 5)
    cut, plain = (
        estimate_step(replace(layout, model=model)).seconds
        for model in (few, replace(few, window_pattern=()))
    )
    assert cut == plain
