"""FLOPs that utilisation counts are those of the papers."""

import pytest

from estimate.layouts import priced
from penstock.arch.config import ModelConfig
from penstock.estimate.utilisation import token_flops, token_flops_again


def test_flops_of_a_plain_model_are_those_of_megatron() -> None:
    """72 B s l h^2 (1 + s/(6 h) + V/(12 l h)), and 96 B s l h^2 (1 + s/(6 h) + V/(16 l h)) with all
    layers computed again (arXiv:2104.04473, section 5.1); there an embedding costs no FLOPs."""
    layers, h, s, words = 24, 2048, 1024, 51200
    model = ModelConfig(layers, h, 4 * h, 16, 16, 128, words, gated=False, tied=True)
    plain = 72 * layers * h**2 * (1 + s / (6 * h) + words / (12 * layers * h))
    again = 96 * layers * h**2 * (1 + s / (6 * h) + words / (16 * layers * h))
    assert token_flops(model, s) == pytest.approx(plain, rel=1e-12)
    assert token_flops_again(model, s, layers) == pytest.approx(again, rel=1e-12)


def test_all_layers_again_are_a_third_more_of_the_layers_work() -> None:
    found = priced(recompute="all", mesh="tensor=4")
    assert found.hardware_utilisation / found.flops_utilisation == pytest.approx(4 / 3, rel=0.03)
