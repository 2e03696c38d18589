"""Ops of several kinds are priced together as each kind is alone."""

import numpy as np
import pytest

from estimate.layouts import row
from penstock.cost.collectives import CELL_AXES
from penstock.estimate.kept import kept_seconds, kept_sums
from penstock.estimate.price import layout_cost
from penstock.estimate.request import layout_from
from penstock.estimate.step_schedule import step_schedule

KINDS = "FBIWNROL"
LAYOUTS = {
    "even": {"mesh": "tensor=2,sequence=2,pipeline=4"},
    "uneven": {"mesh": "tensor=2,pipeline=4", "layers": "11,9,11,9"},
    "computed again": {"mesh": "pipeline=4", "recompute": "layers=3"},
    "windows": {"mesh": "pipeline=4", "model": "gemma3-1b"},
    "cut layers": {"mesh": "pipeline=4", "schedule": "helixpipe"},
}


@pytest.mark.parametrize("changes", LAYOUTS.values(), ids=LAYOUTS)
def test_kinds_are_priced_together_as_alone(changes: dict[str, object]) -> None:
    layout = layout_from(row(**{"tokens": 8192, "batch_tokens": 128 * 8192} | changes))
    kept_sums.cache_clear(), kept_seconds.cache_clear()
    cost = layout_cost(layout, step_schedule(layout))
    computed, waited = cost._of_kinds(KINDS), cost._exposed_of(CELL_AXES, "FBI")
    assert np.array_equal(computed, [cost._of_kinds(kind)[0] for kind in KINDS])
    assert np.array_equal(waited, [cost._exposed_of(CELL_AXES, kind)[0] for kind in "FBI"])
    assert np.array_equal(cost._by_stages(KINDS), computed + cost.times.between)
