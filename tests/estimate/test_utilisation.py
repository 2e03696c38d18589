"""FLOPs that utilisation counts are those of the papers."""

from fractions import Fraction

import pytest

from estimate.layouts import priced
from penstock.arch.config import ModelConfig
from penstock.estimate.price import Estimate
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


SMALL = {"mesh": "pipeline=4", "cluster": "a100-80:4", "shard": "none", "batch_tokens": 8192}


def hardware_flops(found: Estimate) -> float:
    """FLOPs of a step, with what is computed again."""
    gpus = found.layout.cluster.gpus
    peak = gpus * found.layout.cluster.gpu.peak_of(found.layout.precision)
    return found.hardware_utilisation * found.seconds * peak


def test_what_chronos_computes_again_counts() -> None:
    """The first two of the four stages of each device."""
    found = priced(schedule="chronos-recompute", chunks=4, **SMALL)
    flops = token_flops_again(found.layout.model, 2048, sum(found.layers[:8]))
    assert hardware_flops(found) == pytest.approx(8192 * flops, rel=1e-9)


def test_slices_that_chunkflow_computes_again_count() -> None:
    """All but the last of each sequence here."""
    groups = {"groups": "4,4,2,1,1", "retain": "1"}
    found = priced(schedule="chunkflow", options=groups, **SMALL | {"batch_tokens": 6144})
    model, layers = found.layout.model, found.layout.model.layers
    once = {2048: (2, 3 / 4), 1024: (1, 1 / 2), 512: (2, 0)}
    flops = sum(
        count * tokens * token_flops_again(model, tokens, Fraction(layers * again))
        for tokens, (count, again) in once.items()
    )
    assert hardware_flops(found) == pytest.approx(flops, rel=1e-9)


def test_devices_that_compute_an_op_together_compute_it_again_once() -> None:
    found = priced(schedule="sppo-msp", slices=4, recompute="stages", **SMALL)
    flops = token_flops_again(found.layout.model, 2048, 40)
    assert hardware_flops(found) == pytest.approx(8192 * flops, rel=1e-9)
