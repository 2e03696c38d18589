"""FFN Fusion, "It works when" 6, as it is predicted: faster with few tokens, and nothing to gain
alone with very many; measured is that both forms run on this machine. What ranks that share
matrices gain is in tests/estimate/test_fused_layers.py."""

import pytest

from compare_fused_mlps import compare, predicted, run_of
from penstock.fusion.fusion_plan import FusionPlan, fused_model

pytestmark = pytest.mark.torch

RUN = run_of(4, 8192, 28672)
FUSED = fused_model(RUN, FusionPlan(fuse=(range(4),)))


def test_few_tokens_gain_and_many_do_not() -> None:
    few, many = (predicted(RUN, tokens) / predicted(FUSED, tokens) for tokens in (64, 1 << 18))
    assert few > many > 1
    assert many == pytest.approx(1, abs=0.01)


def test_both_forms_are_timed() -> None:
    found = compare(parts=3, tokens=8, hidden=16, ffn=32)
    assert found["measured"]["run"] > 0
    assert found["measured"]["times"] == found["measured"]["run"] / found["measured"]["fused"]
