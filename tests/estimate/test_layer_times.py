"""Seconds of the parts of a layer and of the head, and kernels as they were measured."""

from dataclasses import replace

import pytest

from estimate.layouts import LLAMA_13B, priced, row
from penstock.arch.attention_rule import seen_half_pairs
from penstock.arch.presets import MODELS
from penstock.cluster.gpu import AttentionKernel, PassShares
from penstock.cluster.presets import CLUSTERS
from penstock.estimate.layer_seconds import UnitTokens
from penstock.estimate.layer_times import LayerTimes
from penstock.estimate.request import layout_from

H200 = CLUSTERS["h200"].gpu
MILLISECOND = 1e-3
LLAMA3_8B = replace(MODELS["llama3-8b"], element_bytes=2)


def _times(heads: int = 40, **changes: object) -> LayerTimes:
    model = layout_from(row(model=LLAMA_13B | {"heads": heads, "head_size": 128})).model
    model = replace(model, element_bytes=2)
    times = LayerTimes(model, model, H200, H200.peak["bf16"], "unfused", fused_norm=False)
    return replace(times, **changes)  # type: ignore[arg-type]


def _sequence(tokens: int) -> UnitTokens:
    return UnitTokens(tokens, tokens, tokens, tokens * (tokens + 1) / 2, float(tokens**2))


def test_the_parts_of_the_head_take_as_long_as_the_head() -> None:
    """Passes over a shard have a part of the products with a part of the words, and move as many
    logits as belong to them: 64 bytes of each in two passes, and 6 where they are fused."""
    times = LayerTimes(LLAMA3_8B, LLAMA3_8B, H200, H200.peak["bf16"], "cudnn", fused_norm=True)
    whole = 6.0 * 8192 * LLAMA3_8B.head_weights
    parts = [times.head_seconds(8192, whole * share / 8, kind) for kind, share in _SHARES.items()]
    more = 8192 * LLAMA3_8B.vocabulary * (64 - 6) / times.memory_rate
    assert 8 * sum(parts) == pytest.approx(times.head_seconds(8192, whole, "B") + more, rel=1e-9)


_SHARES = {"S": 2 / 3, "T": 1 / 3}


def test_shards_of_a_vocabulary_share_the_work_of_the_head() -> None:
    """Work of all devices together: what each does more is to look up words of others, and to move
    logits in 32 bits."""
    eight = {
        "model": "llama3-8b",
        "cluster": "h100:8",
        "tokens": 8192,
        "batch_tokens": 16 * 8192,
        "mesh": "pipeline=8",
        "shard": "none",
    }
    plain, shards = (sum(priced(**eight, schedule=each).works) for each in ("1f1b", "vocab-1f1b"))
    gpu = CLUSTERS["h100"].gpu
    logits = 16 * 8192 * LLAMA3_8B.vocabulary
    more = logits * (64 - 6) / (gpu.memory_rate * gpu.reached.memory)
    assert shards == pytest.approx(plain + more, rel=0.01)


def test_ranks_that_share_words_move_logits_in_32_bits() -> None:
    """Each of its own words: 52 bytes in place of 6."""
    part = LLAMA3_8B.share(0, 8)
    times = LayerTimes(part, part, H200, H200.peak["bf16"], "cudnn", fused_norm=True)
    flops = 6.0 * 8192 * part.head_weights
    alone, shared = (
        replace(times, tensor=ranks).head_seconds(8192, flops, "B") for ranks in (1, 8)
    )
    more = 8192 * 128256 / 8 * (52 - 6) / times.memory_rate
    assert shared - alone == pytest.approx(more, rel=1e-9)


def test_the_loss_moves_logits_thrice_of_frozen_heads_too() -> None:
    frozen = layout_from(row(model="llama3-8b") | {"lora": "8"}).model
    tokens, words = 4096, LLAMA3_8B.vocabulary
    for model, products in ((LLAMA3_8B, 6), (replace(frozen, element_bytes=2), 4)):
        times = LayerTimes(model, model, H200, H200.peak["bf16"], "cudnn", fused_norm=True)
        flops = float(products * tokens * model.head_weights)
        assert times.loss_moved(flops, "B") == pytest.approx(3 * tokens * words * 2)


MEASURED_ATTENTION = {(40, 2048): (1.112, 1.541), (20, 8192): (11.056, 11.571)}
"""Milliseconds of a forward and a backward on an H200 with a kernel of PyTorch for each step."""


@pytest.mark.parametrize(("heads", "tokens"), MEASURED_ATTENTION)
def test_attention_of_plain_kernels_takes_about_what_was_measured(heads: int, tokens: int) -> None:
    found = _times(heads).attention_seconds(_sequence(tokens))
    for seconds, measured in zip(found, MEASURED_ATTENTION[heads, tokens]):
        assert seconds == pytest.approx(measured * MILLISECOND, rel=0.15)


MEASURED_BOUNDED = {(16, 256, 8192): (38.036, 47.301), (32, 128, 4096): (18.641, 22.385)}
"""The same of scores with a bound, in blocks and in 32 bits, as runs compute them."""


@pytest.mark.parametrize(("heads", "size", "tokens"), MEASURED_BOUNDED)
def test_attention_with_bounded_scores_takes_what_was_measured(
    heads: int, size: int, tokens: int
) -> None:
    model = replace(MODELS["gemma2-9b"], heads=heads, head_size=size, element_bytes=2)
    times = LayerTimes(model, model, H200, H200.peak["bf16"], "cudnn", fused_norm=True)
    found = times.attention_seconds(_sequence(tokens))
    for seconds, measured in zip(found, MEASURED_BOUNDED[heads, size, tokens]):
        assert seconds == pytest.approx(measured * MILLISECOND, rel=0.03)


MEASURED_WINDOWS = {
    (32, 128, 512, 16384): (0.736, 1.961),
    (32, 128, 1024, 16384): (1.145, 2.941),
    (32, 128, 2048, 16384): (1.950, 4.785),
    (32, 128, 4096, 16384): (2.428, 6.497),
    (32, 128, 4096, 32768): (5.266, 13.991),
    (4, 256, 512, 16384): (0.160, 0.563),
    (4, 256, 1024, 16384): (0.264, 0.885),
    (4, 256, 2048, 16384): (0.469, 1.465),
}
"""The same of heads of a size with a window, as runs compute them: long windows of narrow heads by
triangles, others in one call."""


@pytest.mark.parametrize(("heads", "size", "window", "tokens"), MEASURED_WINDOWS)
def test_windows_take_about_what_was_measured(
    heads: int, size: int, window: int, tokens: int
) -> None:
    sizes = {"heads": heads, "kv_heads": max(1, heads // 4), "head_size": size, "window": window}
    model = replace(MODELS["mistral-7b-v0.1"], **sizes)  # type: ignore[arg-type]
    times = LayerTimes(model, model, H200, H200.peak["bf16"], "cudnn", fused_norm=True)
    unit = _sequence(tokens)._replace(pairs=seen_half_pairs(tokens, window) / 2)
    for seconds, measured in zip(
        times.attention_seconds(unit), MEASURED_WINDOWS[heads, size, window, tokens]
    ):
        assert seconds == pytest.approx(measured * MILLISECOND, rel=0.16)


def test_one_kernel_for_scale_mask_and_softmax_is_between_none_and_one_for_all() -> None:
    kernels: tuple[AttentionKernel, ...] = ("flash2", "fused-softmax", "unfused")
    found = [_times(attention=each).attention_seconds(_sequence(2048)) for each in kernels]
    assert found == sorted(found, key=sum)
    assert [each.forward for each in found] == sorted(each.forward for each in found)


def test_a_norm_of_plain_kernels_takes_about_what_was_measured() -> None:
    """32,768 tokens of 5,120 elements: 2.07 and 4.50 ms; a fused one moves 4 and 6 bytes."""
    rate = H200.memory_rate * H200.reached.memory
    plain, fused = (_moved(fused_norm=each) for each in (False, True))
    elements = 32768 * 5120
    for found, less, measured, own in zip(plain, fused, (2.066, 4.503), (4, 6)):
        each = (found - less) / 2 + own * elements / rate
        assert each == pytest.approx(measured * MILLISECOND, rel=0.05)


def _moved(*, fused_norm: bool) -> PassShares:
    return _times(fused_norm=fused_norm)._moved(_sequence(32768))


@pytest.mark.parametrize(
    ("name", "width"), {"olmo2-7b": (32 + 32) * 128 / 4, "qwen3-8b": 0}.items()
)
def test_norms_over_the_heads_of_several_ranks_are_not_fused(name: str, width: float) -> None:
    """47 and 82 bytes of each element, in place of 4 and 10."""
    part = replace(MODELS[name], element_bytes=2).share(0, 4)
    times = LayerTimes(part, part, H200, H200.peak["bf16"], "cudnn", fused_norm=True)
    alone, shared = (replace(times, tensor=ranks)._moved(_sequence(1000)) for ranks in (1, 4))
    for one, several, more in zip(alone, shared, (47 - 4, 82 - 10)):
        assert several - one == pytest.approx(1000 * width * more / times.memory_rate)
