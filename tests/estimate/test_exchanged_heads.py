"""Ranks that exchange heads for tokens attend to all tokens with some heads, as tensor ranks do."""

from typing import Any

import pytest

from estimate.layouts import priced
from penstock.cluster.gpu import PassShares
from penstock.estimate.layout_cost import LayoutCost
from penstock.estimate.price import layout_cost
from penstock.estimate.request import layout_from
from penstock.estimate.step_schedule import step_schedule

TOKENS = 8192


def _row(model: str, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "model": model,
        "cluster": "h100:4",
        "tokens": TOKENS,
        "schedule": "1f1b",
        "mesh": "tensor=4",
    } | changes
    return found | {"batch_tokens": found["tokens"] * found.get("rows", 1)}


def _cost(model: str, **changes: Any) -> LayoutCost:
    layout = layout_from(_row(model, **changes))
    return layout_cost(layout, step_schedule(layout))


def _attention(model: str, **changes: Any) -> list[PassShares]:
    """Of the last slice in each kind of layer."""
    cost = _cost(model, **changes)
    return [
        own.times(cost.times).attention_seconds(cost.units_of(own.workload)[-2])
        for own in cost.kinds_of_layers
    ]


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("llama3-8b", {}),
        ("llama3-8b", {"attention": "unfused"}),
        ("llama3-8b", {"schedule": "seq1f1b", "slices": 4}),
        ("gemma3-12b", {"attention": "cudnn"}),
        ("mistral-7b-v0.1", {}),
        ("mistral-7b-v0.1", {"rows": 2}),
        ("mistral-7b-v0.1", {"tokens": 4096}),
        ("phi-3-mini", {"schedule": "seq1f1b", "slices": 4}),
    ],
)
def test_attention_takes_as_long_as_that_of_tensor_ranks(
    model: str, changes: dict[str, Any]
) -> None:
    """Also where a window ends inside the sequence, or behind it."""
    alone, exchanged = (_attention(model, mesh=f"{axis}=4", **changes) for axis in _AXES)
    assert [*map(list, exchanged)] == [pytest.approx(list(each), rel=1e-9) for each in alone]


_AXES = ("tensor", "sequence")


def test_attention_that_is_not_fused_keeps_all_pairs_of_its_heads() -> None:
    kept = []
    for axis in _AXES:
        sizes = _row("llama3-8b", mesh=f"{axis}=4")
        fused, plain = (
            priced(**sizes, attention=kernel).memory[0].activations
            for kernel in ("flash2", "unfused")
        )
        kept.append(plain - fused)
    assert kept[0] == kept[1] >= 32 * TOKENS * TOKENS * 32 / 4 * 2


@pytest.mark.parametrize("mesh", [f"{axis}=4" for axis in _AXES])
def test_sequences_side_by_side_have_as_many_queries_beyond_a_window_each(mesh: str) -> None:
    """What is moved for them is added to what a kernel computes; kernels start once for all."""
    ((one, _),), ((three, _),) = (
        _attention("mistral-7b-v0.1", mesh=mesh, rows=rows) for rows in (1, 3)
    )
    assert 3 * one - 1e-4 < three <= 3 * one
