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


def test_short_products_take_the_time_of_their_matrix() -> None:
    n, k = 8192, 8192
    bytes_moved = 2 * (16 * k + n * k + 16 * n)
    moving = bytes_moved / (GPU.memory_rate * GPU.reached.memory)
    assert _seconds(16, n, k) == pytest.approx(KERNEL_START + moving, rel=1e-12)
