"""Identities of memory and FLOPs that reports of a step satisfy, whatever is measured."""

from fractions import Fraction
from typing import Any

import pytest

from penstock.arch.presets import MODELS
from penstock.estimate.layer_times import LayerTimes
from penstock.estimate.price import Estimate, estimate, layout_cost
from penstock.estimate.products import Product
from penstock.estimate.request import layout_from
from penstock.estimate.step_schedule import step_schedule
from penstock.estimate.utilisation import token_flops, token_flops_again
from penstock.profiling.sizes import AttentionSize

MODEL = MODELS["llama3-8b"]
TOKENS = 8192
ROW: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": "h100:8",
    "tokens": TOKENS,
    "batch_tokens": 8 * TOKENS,
    "schedule": "1f1b",
}


def _estimated(**changes: Any) -> Estimate:
    return estimate(layout_from(ROW | changes))


def test_state_of_a_parameter_is_18_bytes_of_which_copies_share_12() -> None:
    """2 of the weight, 4 of its gradient in 32 bits, 12 of main weight and moments."""
    alone, shared = (_estimated(shard=shard).memory[0] for shard in ("none", "optimizer"))
    parameters = alone.weights // 2
    state = (alone.weights, alone.gradients, alone.optimizer)
    assert state == (2 * parameters, 4 * parameters, 12 * parameters)
    assert (shared.weights, shared.gradients) == (alone.weights, alone.gradients)
    assert shared.optimizer == pytest.approx(alone.optimizer / 8, rel=1e-6)


def test_computing_all_layers_again_adds_a_third_of_their_flops() -> None:
    plain = token_flops(MODEL, TOKENS)
    again = token_flops_again(MODEL, TOKENS, MODEL.layers)
    heads = 6 * 2 * MODEL.head_weights
    assert Fraction(again - heads, plain - heads) == Fraction(4, 3)


def test_a_backward_that_computes_layers_again_takes_a_forward_more() -> None:
    kinds = {}
    for recompute in ("none", "all"):
        layout = layout_from(ROW | {"recompute": recompute})
        step = step_schedule(layout)
        seconds = layout_cost(layout, step).computing(step.schedule)
        for op, took in zip(step.schedule.table.ops(), seconds.tolist()):
            kinds[recompute, op.kind] = took
    assert kinds["all", "F"] == kinds["none", "F"]
    assert kinds["all", "B"] - kinds["none", "B"] == pytest.approx(kinds["none", "F"], rel=0.01)


def test_a_layer_that_is_computed_again_keeps_its_input_in_16_bits() -> None:
    layout = layout_from(ROW | {"recompute": "all"})
    step = step_schedule(layout)
    cost = layout_cost(layout, step)
    fewer = layout_from(ROW | {"recompute": f"layers={MODEL.layers - 1}"})
    less = layout_cost(fewer, step)
    kept = [int(each.amounts(step.schedule, "act").ticks[0]) for each in (cost, less)]
    layer = int(cost.workload.layer_bytes("act")[0])
    assert kept[1] - kept[0] == layer - 2 * TOKENS * MODEL.hidden


def test_flops_of_kernels_are_those_of_the_model() -> None:
    gpu = layout_from(ROW).cluster.gpu
    times = LayerTimes(MODEL, MODEL, gpu, 1.0, "flash2", True)
    products = sum(forward.flops for forward, _, _ in times.products(TOKENS))
    assert products == 2 * TOKENS * MODEL.layer_weights
    assert Product(3, 5, 7, 2).flops == 2 * 3 * 5 * 7
    size = AttentionSize(MODEL.heads, MODEL.kv_heads, MODEL.head_size, TOKENS, 0)
    assert size.flops == 2 * TOKENS**2 * MODEL.heads * MODEL.head_size
