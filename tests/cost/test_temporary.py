"""What an op needs only while it runs, in bytes per token."""

from dataclasses import replace

from penstock.arch.config import ModelConfig
from penstock.arch.layers.lm_head import FUSED_LOGITS_BYTES, LOGITS_AT_A_TIME
from penstock.arch.layers.record import wide_bytes
from penstock.cost.temporary import (
    backward_bytes,
    forward_bytes,
    fused_backward_bytes,
    loss_bytes,
)

MODEL = ModelConfig(2, 8, 24, 4, 2, 2, 100, element_bytes=4)
NARROW = replace(MODEL, element_bytes=2)


def test_sums_are_in_32_bits_at_least() -> None:
    assert [wide_bytes(n) for n in (1, 2, 4, 8)] == [4, 4, 4, 8]


def test_a_forward_has_its_output_beside_what_is_kept() -> None:
    assert forward_bytes(MODEL) == 8 * 4


def test_a_backward_is_at_its_highest_in_the_mlp_or_in_attention() -> None:
    mlp = (3 * 24 + 8) * 4 + 3 * 8 * 4
    assert backward_bytes(MODEL) == mlp
    many_heads = replace(MODEL, heads=64, kv_heads=64)
    assert backward_bytes(many_heads) == (2 * 24 + 2 * 8 + (3 + 4) * 64 * 2) * 4


def test_narrow_types_have_wide_sums() -> None:
    assert backward_bytes(NARROW) == (3 * 24 + 8) * 2 + 3 * 8 * 4


def test_fused_kernels_need_no_products_of_a_norm_but_sums_of_attention() -> None:
    """What one H200 measured above what was kept, in a step over a whole sequence: 66,626 and
    122,035 bytes a token with these sizes, what stands apart from tokens included."""
    small = ModelConfig(16, 2048, 8192, 32, 8, 64, 128256, element_bytes=2)
    large = ModelConfig(4, 4096, 14336, 32, 8, 128, 32000, element_bytes=2)
    assert fused_backward_bytes(small) == 2 * (2 * 8192 + 2048 + 3 * 2048 + 4 * 512) + 4 * (
        2048 + 2 * 512 + 2 * 32
    )
    for model, measured in ((small, 66_626), (large, 122_035)):
        assert abs(fused_backward_bytes(model) - measured) <= 0.02 * measured
    assert fused_backward_bytes(replace(NARROW, ffn=1000)) == (3 * 1000 + 8) * 2


def test_logits_are_bounded_and_are_there_twice_in_narrow_types() -> None:
    """Beside them stands the normed input, 8 wide."""
    assert loss_bytes(MODEL, 10) == 10 * (100 + 8) * 4
    assert loss_bytes(NARROW, 10) == 10 * 100 * (4 + 2) + 10 * 8 * 2
    most = LOGITS_AT_A_TIME // 100
    assert loss_bytes(MODEL, 2 * most) == (most * 100 + 2 * most * 8) * 4


def test_fused_kernels_hold_larger_pieces_once() -> None:
    """The larger of both is counted: 4,096 tokens in 2 bytes, or fewer in 2 and 4."""
    wide = replace(NARROW, vocabulary=128256)
    assert loss_bytes(wide, 10**5) - 10**5 * 8 * 2 == (FUSED_LOGITS_BYTES // 256512) * 256512
    assert loss_bytes(NARROW, 10**7) - 10**7 * 8 * 2 == LOGITS_AT_A_TIME // 100 * 100 * 6
