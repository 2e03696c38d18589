"""Rings over machines, worked out by hand: what a block takes to send, and to compute with."""

import pytest

from estimate.layouts import priced
from penstock.cluster.collective_times import NETWORK_SHARE, START
from penstock.cluster.presets import CLUSTERS
from penstock.estimate.price import Estimate

MODEL = {"layers": 4, "hidden": 4096, "ffn": 14336, "heads": 32, "kv_heads": 8, "vocabulary": 32000}
LAYERS, RANKS = 4, 32
H100 = CLUSTERS["h100"]
BLOCK = 4 * 8 * 128
"""Bytes of a token's keys and values: 8 heads of 128 in 16 bits, each."""


def _ring(tokens: int, attention: str = "flash2") -> Estimate:
    """One sequence on 4 machines, whose GPUs all share its tokens."""
    return priced(
        model=MODEL,
        cluster=f"h100:{RANKS}",
        tokens=tokens,
        batch_tokens=tokens,
        mesh=f"sequence={RANKS},ring={RANKS}",
        shard="none",
        attention=attention,
    )


def _pass(tokens: int) -> float:
    """Seconds until keys and values of a rank are with the next one, in another machine."""
    sent = tokens // RANKS * BLOCK
    return START + H100.network.latency + sent / (50e9 * NETWORK_SHARE)


def _attend(tokens: int, attention: str) -> tuple[float, float]:
    """Seconds of a block, forward and backward: a query meets half of a rank's keys on average."""
    reached = getattr(H100.gpu.reached, attention)
    flops = 4 * 4096 * (tokens // RANKS) ** 2 / 2
    return flops / (989e12 * reached.forward), 2 * flops / (989e12 * reached.backward)


@pytest.mark.parametrize("tokens", [262144, 131072, 65536, 32768])
@pytest.mark.parametrize("attention", ["flash2", "cudnn"])
def test_a_ring_waits_for_what_attention_does_not_hide(tokens: int, attention: str) -> None:
    """Forward: 31 blocks, each sent while one is computed. Backward: the first two send keys, the
    next 29 gradients of the block before too, the last one such gradients; these come home beside
    nothing."""
    send, (ahead, back) = _pass(tokens), _attend(tokens, attention)
    forward = 31 * max(0.0, send - ahead)
    backward = (2 + 1) * max(0.0, send - back) + 29 * max(0.0, 2 * send - back) + send
    found = _ring(tokens, attention)
    assert found.exposed["sequence"] == pytest.approx(LAYERS * (forward + backward), rel=1e-6)


def test_short_blocks_are_exposed_and_long_ones_hidden() -> None:
    shares = [
        _ring(tokens).exposed["sequence"] / _ring(tokens).seconds for tokens in (32768, 1 << 20)
    ]
    assert shares[0] > 0.2
    assert shares[1] < 0.01


def test_longer_rings_join_more_parts() -> None:
    """As many pairs on each GPU, but more blocks: kernels are shorter, and each is joined."""
    whole = {"model": MODEL, "cluster": "h100:8", "shard": "none", "tokens": 65536}
    meshes = ("sequence=8,ring=1", "sequence=8,ring=2", "sequence=8,ring=8")
    found = [priced(**whole, batch_tokens=65536, mesh=mesh) for mesh in meshes]
    times = [each.seconds - each.exposed["sequence"] for each in found]
    assert times == sorted(times)
    # 12 + 18 (1/2 + 7 x 3/4) bytes of each query forward, and more for keys and values
    joined = (12 + 18 * 23 / 4) * 4096 * 8192 * LAYERS / (3350e9 * 0.78)
    assert times[2] - times[0] > 2 * joined
