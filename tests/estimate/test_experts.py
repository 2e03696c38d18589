"""Products of experts: each with the rows of its own tokens, and a matrix of its own."""

from dataclasses import replace

import pytest

from estimate.layouts import priced
from penstock.arch.config import ModelConfig
from penstock.arch.lora import Lora
from penstock.arch.mixture import share_experts
from penstock.arch.presets import MODELS
from penstock.cluster.presets import CLUSTERS
from penstock.cluster.profile_file import machine_of
from penstock.estimate.layer_seconds import LayerSeconds, UnitTokens
from penstock.estimate.layer_times import LayerTimes
from penstock.estimate.measured_times import ProfiledTimes, activations_by_part
from penstock.estimate.products import KERNEL_START, Product
from penstock.profiling.case import ProfileCase
from penstock.profiling.sizes import product_sizes
from profiling.made_up import FLOPS, profile

GPU = CLUSTERS["h200"].gpu
MEMORY_RATE = GPU.memory_rate * GPU.reached.memory
PEAK = GPU.peak["bf16"]
MIXTRAL = replace(MODELS["mixtral-8x7b"], element_bytes=2)
QWEN = replace(MODELS["qwen3-30b-a3b"], element_bytes=2)
TOKENS = 4096
Sizes = tuple[int, int, int, int, int]
"""Rows, outputs, inputs, products in a kernel, kernels."""


def _times(model: ModelConfig) -> LayerTimes:
    return LayerTimes(model, model, GPU, PEAK, "cudnn", fused_norm=True)


def _sizes(model: ModelConfig, tokens: int, passed: int) -> list[Sizes]:
    """The products of a pass of the MLP: the router's, inwards, and back."""
    found = [passes[passed] for passes in _times(model).products(tokens)][-3:]
    return [(each.m, each.n, each.k, each.together, each.kernels) for each in found]


def _unit(tokens: int) -> UnitTokens:
    return UnitTokens(tokens, tokens, tokens, tokens * (tokens + 1) / 2, float(tokens**2))


def _seconds(model: ModelConfig, tokens: int) -> LayerSeconds:
    """Of a layer without its attention."""
    times, unit = _times(model), _unit(tokens)
    each = zip(times.seconds(unit), times.attended_seconds(unit))
    return LayerSeconds(*(whole - attended for whole, attended in each))


def test_one_kernel_has_the_rows_of_each_expert() -> None:
    rows = TOKENS * 8 // 128
    assert _sizes(QWEN, TOKENS, 0) == [
        (TOKENS, 128, 2048, 1, 1),
        (rows, 2 * 768, 2048, 128, 1),
        (rows, 2048, 768, 128, 1),
    ]
    assert _sizes(QWEN, TOKENS, 1)[1:] == [(rows, 2048, 2 * 768, 128, 1), (rows, 768, 2048, 128, 1)]


def test_short_weight_gradients_of_all_experts_are_one_kernel() -> None:
    rows = TOKENS * 8 // 128
    assert _sizes(QWEN, TOKENS, 2) == [
        (128, 2048, TOKENS, 1, 1),
        (2 * 768, 2048, rows, 128, 1),
        (2048, 768, rows, 128, 1),
    ]


def test_the_weight_gradient_of_each_expert_is_a_kernel_where_it_is_long() -> None:
    """Longer than the host takes to launch it; a kernel for all is one of ours, which are fused."""
    rows = 8 * TOKENS * 8 // 128
    assert [each[3:] for each in _sizes(QWEN, 8 * TOKENS, 2)] == [(1, 1), (1, 128), (128, 1)]
    assert _sizes(MIXTRAL, TOKENS, 2)[1:] == [
        (2 * 14336, 4096, TOKENS * 2 // 8, 1, 8),
        (4096, 14336, TOKENS * 2 // 8, 1, 8),
    ]
    plain = replace(_times(QWEN), fused_norm=False)
    assert {each[2].together for each in plain.products(TOKENS)} == {1}
    assert rows == 2048


MEASURED_GRADIENTS = {
    (1536, 2048, 128): 1.244,
    (1536, 2048, 512): 1.693,
    (2048, 768, 128): 0.661,
    (2048, 768, 512): 0.859,
    (2048, 768, 2048): 2.060,
}
"""Milliseconds of weight gradients of 128 experts in one kernel, on an H200."""


@pytest.mark.parametrize("sizes", MEASURED_GRADIENTS)
def test_a_kernel_for_all_gradients_takes_about_what_was_measured(
    sizes: tuple[int, int, int],
) -> None:
    one = Product(*sizes, result_bytes=8, adds=True, together=128)
    seconds = one.seconds(GPU, PEAK * GPU.reached.products, 2)
    assert seconds == pytest.approx(MEASURED_GRADIENTS[sizes] * 1e-3, rel=0.18)


MEASURED_ROUTING = {8192: (0.713, 0.937), 32768: (2.436, 3.537)}
"""Milliseconds of what tokens of `QWEN` take beside products, forward and backward."""


@pytest.mark.parametrize("tokens", MEASURED_ROUTING)
def test_rows_of_experts_take_about_what_was_measured(tokens: int) -> None:
    parts = _times(QWEN).parts(_unit(tokens))
    for passed, measured in zip(("forward", "inputs"), MEASURED_ROUTING[tokens]):
        assert parts["rows", passed] == pytest.approx(measured * 1e-3, rel=0.08)
    assert ("rows", "forward") not in _times(MODELS["llama3-8b"]).parts(_unit(tokens))


def test_in_32_bits_each_expert_has_a_kernel_in_all_passes() -> None:
    wide = replace(QWEN, element_bytes=4)
    for passed in range(3):
        assert [each[3:] for each in _sizes(wide, TOKENS, passed)] == [(1, 1), (1, 128), (1, 128)]


def test_replicas_that_share_experts_have_fewer_with_more_rows_each() -> None:
    assert QWEN.mixture is not None
    shared = replace(QWEN, mixture=share_experts(QWEN.mixture, 8))
    rows = 8 * TOKENS * 8 // 128
    assert _sizes(shared, TOKENS, 0) == [
        (TOKENS, 128, 2048, 1, 1),
        (rows, 2 * 768, 2048, 16, 1),
        (rows, 2048, 768, 16, 1),
    ]


def test_few_tokens_meet_few_experts() -> None:
    assert [each[0] * each[3] for each in _sizes(QWEN, 2, 0)[1:]] == [16, 16]


@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen3-30b-a3b", "llama3-8b"])
def test_products_have_the_flops_of_what_a_token_meets(name: str) -> None:
    model = replace(MODELS[name], element_bytes=2)
    wanted = TOKENS * sum(each.flops_per_token for each in model.layer_records)
    for passes in zip(*_times(model).products(TOKENS)):
        assert sum(each.flops for each in passes) == wanted


def test_weights_and_sums_of_all_experts_are_moved() -> None:
    """Tokens that go to 8 experts each go to all of 128 together."""
    matrices = 128 * 3 * 2048 * 768
    found = _seconds(QWEN, 256)
    assert found.forward > 2 * matrices / MEMORY_RATE
    assert found.inputs > 2 * matrices / MEMORY_RATE
    assert found.weights > 8 * matrices / MEMORY_RATE


def test_experts_take_longer_than_one_mlp_with_as_many_flops() -> None:
    for model in (MIXTRAL, QWEN):
        dense = replace(model, mixture=None, ffn=model.ffn_per_token)
        for own, plain in zip(_seconds(model, TOKENS), _seconds(dense, TOKENS)):
            assert own > plain


def test_many_tokens_of_few_experts_take_about_as_long_as_one_mlp_and_their_routing() -> None:
    dense = replace(MIXTRAL, mixture=None, ffn=MIXTRAL.ffn_per_token)
    tokens = 1 << 16
    parts = _times(MIXTRAL).parts(_unit(tokens))
    routed = (parts["rows", "forward"], parts["rows", "inputs"], 0.0)
    for own, plain, rows in zip(_seconds(MIXTRAL, tokens), _seconds(dense, tokens), routed):
        assert own - rows == pytest.approx(plain, rel=0.03)


def test_a_frozen_layer_has_no_weight_gradients_of_experts() -> None:
    frozen = replace(QWEN, lora=Lora(8, targets=("q_proj", "v_proj")))
    passes = [*_times(frozen).products(TOKENS)]
    assert {len(each) for each in passes if each[0].groups > 1} == {2}


def test_a_step_of_narrow_experts_uses_less_of_the_gpu_than_one_of_wide_ones() -> None:
    given = {
        "cluster": "h200:8",
        "tokens": TOKENS,
        "batch_tokens": 8 * TOKENS,
        "mesh": "tensor=2,pipeline=4",
        "schedule": "1f1b",
        "shard": "optimizer",
    }
    wide, narrow = (
        priced(model=name, **given).flops_utilisation for name in ("mixtral-8x7b", "qwen3-30b-a3b")
    )
    assert narrow < 0.6 * wide


def test_groups_of_a_kernel_share_waves_and_kernels_do_not() -> None:
    rate = PEAK * GPU.reached.products
    one = Product(2048, 2048, 4096, 2)
    full, more = (
        one._replace(together=count).seconds(GPU, rate, 2) for count in (GPU.cores, GPU.cores + 1)
    )
    assert full == pytest.approx(KERNEL_START + GPU.cores * one.flops / rate, rel=1e-12)
    assert full < more < 1.02 * full
    alone = one.seconds(GPU, rate, 2)
    assert one._replace(kernels=5).seconds(GPU, rate, 2) == 5 * alone
    assert one._replace(together=5).seconds(GPU, rate, 2) < 5 * alone


def _profiled(rows: int) -> ProfiledTimes:
    """On a machine whose products of so many rows reach a rate, and those of 16 times as many
    twice of it."""
    sizes = {"forward": ("m",), "inputs": ("m",), "weights": ("k",)}
    points = [
        {"pass": name, "m": 64, "n": 64, "k": 64, "seconds": 1.0, own: count} | rate
        for name, (own,) in sizes.items()
        for count, rate in (
            (rows, {"flops_per_second": FLOPS}),
            (16 * rows, {"flops_per_second": 2 * FLOPS}),
        )
    ]
    gpu = machine_of(profile(products=points), "ours").cluster.gpu
    return ProfiledTimes(QWEN, QWEN, gpu, 1.0, "flash2", False)


def test_with_a_profile_experts_have_the_rate_of_their_rows() -> None:
    rows = TOKENS * 8 // 128
    times = _profiled(rows)
    parts = times.parts(_unit(TOKENS))
    *_, inwards, back = range(len(times.matrices))
    for number, width in ((inwards, 2 * 768), (back, 768)):
        for name in ("forward", "inputs", "weights"):
            wanted = 2 * TOKENS * 8 * 2048 * width / FLOPS
            assert parts[f"product {number}", name] == pytest.approx(wanted)
    of_router = 2 * TOKENS * 2048 * 128 / (2 * FLOPS)
    assert parts[f"product {inwards - 1}", "forward"] == pytest.approx(of_router)


def test_a_profile_measures_matrices_of_an_expert_with_its_rows() -> None:
    case = ProfileCase("ours", QWEN, TOKENS, 1, widths=(1.0,))
    found = {(name, each.m, each.n, each.k) for name, each in product_sizes(case, _times(QWEN))}
    for tokens in (TOKENS // 4, TOKENS):
        rows = tokens * 8 // 128
        assert ("forward", rows, 2 * 768, 2048) in found
        assert ("weights", 2048, 768, rows) in found
        assert ("forward", tokens, 128, 2048) in found
    assert not any(each[1:3] == (TOKENS, 2 * 768 * 8) for each in found)


def test_on_a_host_products_of_experts_pass_on_as_much_as_those_of_one() -> None:
    """For each multiplication: a token goes through more of the same matrices."""
    wide, narrow = 2 * 768, 768
    moved = 8 * (2048 + wide) + 8 * (2048 + narrow) + (128 + 2048)
    flops = 8 * 2048 * (wide + narrow) + 128 * 2048
    attention = [each.sides for each in _times(QWEN).matrices[:-3]]
    moved += sum(map(sum, attention))
    flops += sum(outputs * inputs for outputs, inputs in attention)
    assert activations_by_part(_times(QWEN))["layer"] == pytest.approx(moved / flops)
