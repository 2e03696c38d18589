"""What the kernels of a layer move, of families whose layers have more than two norms."""

from dataclasses import replace

import pytest

from loops import each
from penstock.arch.lora import Lora
from penstock.arch.presets import MODELS
from penstock.cluster.presets import CLUSTERS
from penstock.estimate.kernel_parts import (
    HEAD_NORMS,
    HEADS_EXCHANGED,
    LayerMatrix,
    adapter_matrices,
    adapter_matrix,
    layer_moved,
    logits_moved,
    moving_kernels,
    split_logits_moved,
)
from penstock.estimate.layer_seconds import UnitTokens
from penstock.estimate.layer_times import LayerTimes
from penstock.estimate.products import KERNEL_START

TOKENS = 1000
UNIT = UnitTokens(TOKENS, TOKENS, TOKENS, 1.0, 1.0)

NORMS = {
    "llama3-8b": (2, 4096, 0),
    "gemma2-2b": (4, 2304, 0),
    "gemma3-1b": (4, 1152, (4 + 1) * 256),
    "qwen3-8b": (2, 4096, (32 + 8) * 128),
    "olmo2-7b": (2, 4096, (32 + 32) * 128),
}
"""Norms of a layer, their elements, and those of queries and keys that have norms."""


@each("name", NORMS)
def test_every_norm_of_a_layer_is_counted(name: str) -> None:
    """In front of attention and MLP, behind them or both, and of queries and keys: these are read
    and written, and backward copied to where they were."""
    norms, hidden, heads = NORMS[name]
    moved = layer_moved(replace(MODELS[name], element_bytes=2), UNIT)
    assert moved["norm", "forward"] == 2 * TOKENS * norms * 2 * hidden
    assert moved["norm", "inputs"] == 2 * TOKENS * norms * 3 * hidden
    assert moved.get((HEAD_NORMS, "forward"), 0) == 2 * TOKENS * 2 * heads
    assert moved.get((HEAD_NORMS, "inputs"), 0) == 2 * TOKENS * 5 * heads


def test_a_gate_with_gelu_is_several_kernels() -> None:
    """gelu(x), then times y; backward gelu(x), times d, d times y, and the gradient of gelu."""
    silu, gelu = (layer_moved(replace(MODELS[name], element_bytes=2), UNIT) for name in GATED)
    for passed, of_silu, of_gelu in (("forward", 3, 2 + 3), ("inputs", 5, 2 + 3 + 3 + 3)):
        assert silu["gate", passed] == 2 * TOKENS * of_silu * 14336
        assert gelu["gate", passed] == 2 * TOKENS * of_gelu * 6912


GATED = ("llama3-8b", "gemma3-1b")


def test_a_bound_on_logits_moves_them_in_32_bits() -> None:
    """Of 16 bits: to 32 and back 12 bytes; divided, tanh, squared, negated, plus 1 and times the
    bound 8 each; gradients, read and written, times the slope 8. Plain ones move 6."""
    capped = replace(MODELS["gemma2-2b"], element_bytes=2)
    plain = replace(capped, logit_cap=None)
    assert logits_moved(plain, 10.0) == 10 * 6
    assert logits_moved(capped, 10.0) == 10 * (6 + 12 + 6 * 8 + 8)
    assert logits_moved(replace(capped, element_bytes=4), 10.0) == 10 * (12 + 6 * 8 + 12)


def test_copies_around_exchanges_of_heads_are_counted() -> None:
    """Of queries 6 + 4 elements forward, of keys and values 6 each; backward of queries 6 + 4 + 2,
    of keys and values 4 + 4 each. Tokens in attention are those of four ranks."""
    model = replace(MODELS["llama3-8b"], element_bytes=2)
    exchanged = UNIT._replace(attended=4 * TOKENS)
    moved = layer_moved(model, exchanged)
    assert moved[HEADS_EXCHANGED, "forward"] == 2 * TOKENS * (10 * 4096 + 6 * 2 * 1024)
    assert moved[HEADS_EXCHANGED, "inputs"] == 2 * TOKENS * (12 * 4096 + 8 * 2 * 1024)
    kernels = (moving_kernels(model, unit).values() for unit in (UNIT, exchanged))
    assert [*map(sum, kernels)] == [6, 6 + 12]
    assert (HEADS_EXCHANGED, "forward") not in layer_moved(model, UNIT)


BOUNDED = {"llama3-8b": 0, "gemma2-2b": 60}


@each("name", BOUNDED)
def test_logits_of_shared_words_are_moved_kernel_by_kernel(name: str) -> None:
    """Of 16 bits: to 32 and back 12 bytes, twice in two passes; the largest found and sums 4 each,
    the largest taken off, exponentials, divided and weighed 8 each. A bound is six kernels of 8
    there, and 12 on the way back."""
    model, bound = replace(MODELS[name], element_bytes=2), BOUNDED[name]
    assert split_logits_moved(model, 10.0, in_two_passes=False) == 10 * (12 + 8 + 32 + bound)
    assert split_logits_moved(model, 10.0, in_two_passes=True) == 10 * (24 + 8 + 32 + bound)
    wide = replace(model, element_bytes=4)
    assert split_logits_moved(wide, 10.0, in_two_passes=True) == 10 * (8 + 32 + bound)


def test_the_kernels_of_a_layer_are_launched_and_move_these_bytes() -> None:
    """23 launches: norms 4, of heads 2, two more in front of each of these for 1 + w; sums 2, the
    rotation, the gate 2. Attention is apart."""
    model = replace(MODELS["gemma3-1b"], element_bytes=2)
    gpu = CLUSTERS["h200"].gpu
    times = LayerTimes(model, model, gpu, gpu.peak["bf16"], "cudnn", fused_norm=True)
    each = 2 * TOKENS / times.memory_rate
    bytes_of = each * ((4 * 2 + 2 * 3) * 1152 + (2 + 2) * 1280 + 5 * 6912)
    assert sum(moving_kernels(model, UNIT).values()) == 23
    assert times._moved(UNIT).forward == pytest.approx(23 * KERNEL_START + bytes_of, rel=1e-12)


def test_products_of_adapters_are_those_of_a_run() -> None:
    """A of matrices with one input are one product, B one each. B reads and writes what it adds to;
    backward so does A, and reads its input once more."""
    model = replace(MODELS["llama3-8b"], element_bytes=2, lora=Lora(16))
    found = [adapter_matrix(own) for own in adapter_matrices(model)]
    down, up = {"moved": (1, 3)}, {"moved": (2, 1)}
    assert found == [
        LayerMatrix(3 * 16, 4096, **down),
        *(LayerMatrix(outputs, 16, **up) for outputs in (4096, 1024, 1024)),
        LayerMatrix(16, 4096, **down),
        LayerMatrix(4096, 16, **up),
        LayerMatrix(2 * 16, 4096, **down),
        LayerMatrix(16, 14336, **down),
        *(LayerMatrix(outputs, 16, **up) for outputs in (14336, 14336, 4096)),
    ]


def test_a_narrow_product_takes_what_it_moves() -> None:
    """B of 14,336 outputs: 8,192 tokens of 16 and 14,336 elements, the latter read and written."""
    model = replace(MODELS["llama3-8b"], element_bytes=2)
    gpu = CLUSTERS["h200"].gpu
    times = LayerTimes(model, model, gpu, gpu.peak["bf16"], "cudnn", fused_norm=True)
    forward, *_ = times.passes(8192, LayerMatrix(14336, 16, moved=(2, 1)))
    moved = 2 * ((8192 + 14336) * 16 + 2 * 8192 * 14336)
    found = forward.seconds(gpu, times.product_rate, 2)
    assert found == pytest.approx(KERNEL_START + moved / times.memory_rate, rel=1e-12)
