"""Steps of arXiv:2205.05198, table 5: models without a gate on A100, with sequence-parallel norms,
and attention of several kernels that is computed again. No constant is fitted to them, and nothing
of what that system loses beside kernels and collectives is known here."""

from typing import Any

import pytest

from penstock.estimate.answer import answer_row

PUBLISHED: dict[str, tuple[tuple[int, int, int], dict[str, Any], float]] = {
    "22b": ((48, 6144, 64), {"mesh": "tensor=8", "cluster": "a100-80:8", "rows": 4}, 1.10),
    "175b": (
        (96, 12288, 96),
        {"mesh": "tensor=8,pipeline=8", "cluster": "a100-80:64", "chunks": 3},
        13.75,
    ),
    "530b": (
        (105, 20480, 128),
        {"mesh": "tensor=8,pipeline=35", "cluster": "a100-80:280", "chunks": 3},
        37.83,
    ),
    "1t": ((128, 25600, 160), {"mesh": "tensor=8,pipeline=64", "cluster": "a100-80:512"}, 71.49),
}
"""Layers, width and heads; the layout; seconds of a step."""
SEQUENCES = {"22b": 4, "175b": 64, "530b": 280, "1t": 512}
"""Of a batch, each of 2,048 tokens."""


def _answer(name: str, **changes: Any) -> dict[str, Any]:
    (layers, hidden, heads), layout, _ = PUBLISHED[name]
    model = {"layers": layers, "hidden": hidden, "ffn": 4 * hidden, "heads": heads}
    row = {
        "model": model | {"vocabulary": 51200, "gated": False, "tied": True},
        "tokens": 2048,
        "batch_tokens": 2048 * SEQUENCES[name],
        "schedule": "interleaved" if "chunks" in layout else "1f1b",
        "attention": "fused-softmax",
        "recompute": "selective",
    }
    return answer_row(row | layout | changes)


@pytest.mark.parametrize("name", PUBLISHED)
def test_table_5_a_step_takes_up_to_an_eighth_longer_than_estimated_and_fits(name: str) -> None:
    """1T takes as long as estimated."""
    found = _answer(name)
    assert 0.89 < found["step_seconds"] / PUBLISHED[name][2] < 1.01
    assert found["fits"]


def test_table_4_computing_attention_alone_again_takes_a_few_percent_longer() -> None:
    """20.3 instead of 19.0 ms for a layer of 22B, 1.07 times."""
    again, kept = _answer("22b"), _answer("22b", recompute="none")
    longer = again["step_seconds"] / kept["step_seconds"]
    assert longer == pytest.approx(20.3 / 19.0, rel=0.02)
    assert again["hardware_utilisation"] > again["flops_utilisation"]
    assert kept["hardware_utilisation"] == kept["flops_utilisation"]


def test_table_5_computing_all_layers_again_takes_a_third_longer() -> None:
    """18.13 instead of 13.75 s for 175B: 1.32 times; 1.37 is estimated."""
    again = _answer("175b", recompute="all")["step_seconds"]
    assert again / _answer("175b")["step_seconds"] == pytest.approx(18.13 / 13.75, rel=0.05)
