"""FFN Fusion, "It works when" 3: where MLPs add little, of size e, the sequential and the parallel
form differ by e squared."""

from math import log

import pytest
import torch

from fusion.samples import PlainMlp, parallel_form, run_model, sequential_form, weights_of

pytestmark = pytest.mark.torch

SIZES = (1e-2, 1e-3, 1e-4)


def difference(size: float) -> float:
    """Between both forms with outputs scaled by a size; all layers have the same norm, so that
    they differ in their input alone."""
    model = run_model((8, 5, 7))
    mlps = [PlainMlp(weights_of(model), layer, "silu") for layer in range(1, 4)]
    for mlp in mlps:
        mlp.down, mlp.norm = size * mlp.down, mlps[-1].norm
    x = torch.randn(9, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    return float((sequential_form(mlps, x) - parallel_form(mlps, x, "last")).norm())


def test_the_slope_is_2_on_logarithmic_axes() -> None:
    found = [difference(size) for size in SIZES]
    for (low, near), (high, far) in zip(zip(SIZES[1:], found[1:]), zip(SIZES, found)):
        assert log(far / near) / log(high / low) == pytest.approx(2, abs=0.02)


def test_with_norms_of_their_own_the_last_norm_is_off_by_the_first_order() -> None:
    """What the choice of the last norm adds to the difference does not shrink as fast."""
    model = run_model((8, 5, 7))
    mlps = [PlainMlp(weights_of(model), layer, "silu") for layer in range(1, 4)]
    x = torch.randn(9, 12, dtype=torch.float64)
    found = []
    for size in SIZES[:2]:
        for mlp in mlps:
            mlp.down = mlp.down / mlp.down.norm() * size
        right = sequential_form(mlps, x)
        found.append([float((right - parallel_form(mlps, x, n)).norm()) for n in ("last", "own")])
    (last, own), (small_last, small_own) = found
    assert log(last / small_last) / log(10) == pytest.approx(1, abs=0.1)
    assert log(own / small_own) / log(10) == pytest.approx(2, abs=0.1)
