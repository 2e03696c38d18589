"""Products take waves of tiles, or the time of their bytes."""

import pytest

from penstock.cluster.presets import CLUSTERS
from penstock.estimate.products import KERNEL_START, TILES, Product

GPU = CLUSTERS["h100"].gpu
RATE = GPU.peak["bf16"] * GPU.reached.products


def _seconds(m: int, n: int, k: int) -> float:
    return Product(m, n, k, 2).seconds(GPU, RATE, 2)


def test_full_waves_reach_the_rate_of_large_products() -> None:
    a, b, _ = TILES[0]
    m, n, k = 12 * a, 11 * b * 4, 8192  # 132 cores, four waves
    assert _seconds(m, n, k) == pytest.approx(KERNEL_START + 2 * m * n * k / RATE, rel=1e-12)


def test_one_tile_more_is_another_wave_of_some_tile() -> None:
    a, b, _ = TILES[0]
    full, more = _seconds(12 * a, 11 * b, 8192), _seconds(12 * a, 11 * b + 1, 8192)
    assert more > 1.05 * full


def test_narrow_products_reach_less() -> None:
    wide, narrow = (2 * 2048 * 8192 * n / _seconds(2048, n, 8192) for n in (8192, 256))
    assert narrow < 0.8 * wide


MEASURED_ON_H200 = {2048: (797, 943), 4096: (1729, 1822), 8192: (3370, 3480)}
"""Microseconds of a gradient [27648, 5120] by its tokens: written in 16 bits, and added to 32."""


@pytest.mark.parametrize("tokens", MEASURED_ON_H200)
def test_what_is_added_to_is_waited_for_in_part(tokens: int) -> None:
    written, added = MEASURED_ON_H200[tokens]
    gpu = CLUSTERS["h200"].gpu
    kinds = (Product(27648, 5120, tokens, 2), Product(27648, 5120, tokens, 8, adds=True))
    found = [each.seconds(gpu, gpu.peak["bf16"] * gpu.reached.products, 2) for each in kinds]
    assert found[1] / found[0] == pytest.approx(added / written, abs=0.06)
    assert found[1] == pytest.approx(added * 1e-6, rel=0.08)


def test_short_products_that_add_take_the_time_of_their_bytes() -> None:
    n, k = 8192, 16
    moving = (2 * (8192 + n) * k + 8 * 8192 * n) / (GPU.memory_rate * GPU.reached.memory)
    found = Product(8192, n, k, 8, adds=True).seconds(GPU, RATE, 2)
    assert found == pytest.approx(KERNEL_START + moving, rel=1e-12)


def test_short_products_take_the_time_of_their_matrix() -> None:
    n, k = 8192, 8192
    bytes_moved = 2 * (16 * k + n * k + 16 * n)
    moving = bytes_moved / (GPU.memory_rate * GPU.reached.memory)
    assert _seconds(16, n, k) == pytest.approx(KERNEL_START + moving, rel=1e-12)
