"""FFN Fusion, "It works when" 6: where ranks share matrices a fused run is faster with few tokens;
alone and with very many nothing is gained.

Predicted here are times of a forward. What one H200 measured is a table of the page, whose
predictions are compared with those of today; a test run has no GPU of its own.
"""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from compare_fused_mlps import compare, predicted, run_of
from penstock.arch.config import ModelConfig
from penstock.fusion.fusion_plan import FusionPlan, fused_model
from predict_published_fusion import forward_seconds

pytestmark = pytest.mark.torch

PARTS = 4
PAGE = Path(__file__).parents[2] / "docs/concepts/ffn-fusion.md"


def both(parts: int, hidden: int, ffn: int) -> tuple[ModelConfig, ModelConfig]:
    """A run of MLPs, and it fused."""
    run = run_of(parts, hidden, ffn)
    return run, fused_model(run, FusionPlan(fuse=(range(parts),)))


def gain(tokens: int, ranks: int) -> float:
    """How many times faster the fused form is on ranks that share matrices."""
    run, fused = (
        replace(each, heads=8, kv_heads=8, vocabulary=64) for each in both(PARTS, 8192, 28672)
    )
    return forward_seconds(run, tokens, ranks) / forward_seconds(fused, tokens, ranks)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_few_tokens_on_ranks_that_share_matrices_are_faster(ranks: int) -> None:
    assert gain(64, ranks) > 1.03
    assert gain(64, ranks) > gain(64, 1)


def test_more_ranks_gain_more() -> None:
    """Products are divided, and what is waited for is not."""
    assert all(few < many for few, many in pairwise(gain(64, ranks) for ranks in (1, 2, 4, 8)))


def test_alone_and_with_very_many_tokens_nothing_is_gained() -> None:
    assert gain(1 << 18, 1) == pytest.approx(1, abs=0.015)
    assert gain(1 << 18, 1) < gain(64, 1) < gain(64, 8)


def test_forward_and_gradients_gain_with_few_tokens_and_not_with_many() -> None:
    run, fused = both(PARTS, 8192, 28672)
    few, many = (predicted(run, tokens) / predicted(fused, tokens) for tokens in (64, 1 << 18))
    assert few > many > 1
    assert many == pytest.approx(1, abs=0.01)


class Measured(NamedTuple):
    """A row of the page's table."""

    parts: int
    tokens: int
    run: float
    fused: float
    times: float
    predicted: float


def measured() -> list[Measured]:
    lines = PAGE.read_text().split("| MLPs | tokens |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip().replace(",", "") for cell in line.split("|")[1:-1]] for line in lines]
    return [Measured(int(a), int(b), *map(float, rest)) for a, b, *rest in cells]


def test_the_page_has_the_predictions_of_today_beside_what_was_measured() -> None:
    sizes = [(8192, 28672)] * 3 + [(4096, 14336)]
    for row, (hidden, ffn) in zip(measured(), sizes, strict=True):
        run, fused = both(row.parts, hidden, ffn)
        now = predicted(run, row.tokens) / predicted(fused, row.tokens)
        assert f"{now:.3f}" == f"{row.predicted:.3f}"
        assert row.times == pytest.approx(row.run / row.fused, rel=2e-3)


def test_one_gpu_gained_nothing_with_many_tokens_and_something_with_few() -> None:
    """As it was measured; the prediction is within two hundredths where products fill the GPU."""
    rows = sorted(measured(), key=lambda row: row.tokens)
    many = [row for row in rows if row.tokens >= 2048]
    assert all(row.times == pytest.approx(1, abs=0.01) for row in many)
    assert all(row.predicted == pytest.approx(row.times, abs=0.02) for row in many)
    assert rows[0].times > 1.1


def test_both_forms_are_timed() -> None:
    found = compare(parts=3, tokens=8, hidden=16, ffn=32)
    assert min(found["measured"]["run"], found["measured"]["fused"]) > 0
    assert found["measured"]["times"] == found["measured"]["run"] / found["measured"]["fused"]
