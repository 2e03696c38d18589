"""FFN Fusion, "It works when" 7: published are 1.71 times for the whole, of which 1.53 comes from
what is removed and 1.12 from fusing, with quality that is measured elsewhere. Predicted, with no
number that is fitted, are the sizes of both steps and which of them is larger."""

from itertools import pairwise
from pathlib import Path

import pytest

from penstock.fusion.fusion_plan import fused_model, read_fusion_plan
from predict_published_fusion import PARENT, REMOVED, SIZES, WEIGHTS, gains, published, rows

PAGE = Path(__file__).parents[2] / "docs/concepts/ffn-fusion.md"


def test_the_models_are_the_published_ones() -> None:
    """405 and 253 billion weights; 49 layers in four, and one behind them that is left out."""
    parent, pruned, fused = published()
    assert parent.parameters == pytest.approx(405e9, rel=0.01)
    assert pruned.parameters == pytest.approx(WEIGHTS, rel=0.01)
    bare = [at for at in range(126) if not pruned.block(at).attention]
    assert bare == [*range(66, 116)]
    widths = [len(fused.block(at).fused) for at in range(fused.layers)]
    assert widths == [0] * 66 + [8, 12, 15, 14] + [0] * 11


@pytest.mark.parametrize("tokens", [64, 256, 1024])
def test_most_of_it_comes_from_what_is_removed(tokens: int) -> None:
    """With few tokens on eight ranks fusing adds about a tenth, and removing about half."""
    removed, fused = gains(tokens, 8)
    assert 1.3 < removed < 1.7
    assert 1.05 < fused < 1.15
    assert removed - 1 > 3 * (fused - 1)


def test_attentions_have_few_of_the_weights_that_go() -> None:
    """So MLPs that become narrower are most of what is removed."""
    bare = fused_model(PARENT, read_fusion_plan(f"remove={REMOVED}"))
    gone = PARENT.parameters - bare.parameters
    assert gone < 0.2 * (PARENT.parameters - WEIGHTS)


def test_fusing_gains_less_the_more_tokens_there_are_and_nothing_alone() -> None:
    shared = [gains(tokens, 8)[1] for tokens in (256, 1024, 8192, 65536)]
    assert all(few > many > 1 for few, many in pairwise(shared))
    assert gains(65536, 1)[1] == pytest.approx(1, abs=0.005)


def test_the_table_of_the_page_is_what_the_script_prints() -> None:
    text = PAGE.read_text().split("<!-- published -->")[1].split("<!-- end -->")[0]
    assert text.strip().splitlines()[2:] == rows()
    assert len(rows()) == len(SIZES)
