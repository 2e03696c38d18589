"""Layers of stages: given, even, or balanced by the times of an estimate."""

from dataclasses import replace
from typing import Any

import pytest

from estimate.layouts import priced, row
from penstock.arch.layer_split import even_split
from penstock.errors import ShapeError
from penstock.estimate.answer import answer_row
from penstock.estimate.balanced_layers import balanced_layers
from penstock.estimate.price import Estimate, estimate, estimate_step
from penstock.estimate.reasons import reasons
from penstock.estimate.request import layout_from

FOUR: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": "h100:4",
    "tokens": 8192,
    "batch_tokens": 32 * 8192,
    "mesh": "pipeline=4",
    "shard": "none",
}
"""A head of 128,256 words, which weighs more than two layers."""


def _found(layers: object, **changes: Any) -> Estimate:
    return priced(**(FOUR | changes), layers=layers)


def test_counts_are_text_or_a_list() -> None:
    assert layout_from(row(**FOUR, layers="9,9,8,6")).layers == (9, 9, 8, 6)
    assert layout_from(row(**FOUR, layers=[9, 9, 8, 6])).layers == (9, 9, 8, 6)
    assert layout_from(row(**FOUR, layers="even")) == layout_from(row(**FOUR))


def test_weights_and_activations_follow_the_layers() -> None:
    even, found = _found("even").memory, _found([10, 8, 8, 6]).memory
    model = layout_from(row(**FOUR)).model
    layer = model.layer_weights + model.layer_vectors
    assert found[0].weights - even[0].weights == 2 * 2 * layer
    assert even[3].weights - found[3].weights == 2 * 2 * layer
    assert found[0].activations * 8 == even[0].activations * 10


def test_a_balanced_split_is_the_fastest_near_it() -> None:
    """Of the even one and all that differ from it by a layer, none is faster by a percent: a step
    also has a beginning and an end."""
    found = _found("balanced")
    assert sum(found.layers) == 32
    assert found.layers != even_split(32, 4)
    assert found.layers[3] == min(found.layers)
    near = [even_split(32, 4)]
    for source in range(4):
        for target in range(4):
            moved = [*found.layers]
            moved[source] -= 1
            moved[target] += 1
            near.append(tuple(moved))
    fastest = min(estimate_step(replace(found.layout, layers=each)).seconds for each in near)
    assert found.seconds <= fastest * 1.01
    assert found.seconds < 0.95 * _found("even").seconds


@pytest.mark.parametrize(
    "changes",
    [{"tokens": 131072, "batch_tokens": 32 * 131072}, {"vocabulary": True}, {"mesh": "tensor=4"}],
)
def test_where_the_head_is_light_or_shared_even_is_balanced(changes: dict[str, Any]) -> None:
    assert balanced_layers(layout_from(row(**(FOUR | changes)))) == ()


@pytest.mark.parametrize(
    ("schedule", "chunks"), [("interleaved", 2), ("zb-v", None), ("dualpipev", None)]
)
def test_stages_of_one_device_are_balanced_together(schedule: str, chunks: int | None) -> None:
    even, found = (_found(each, schedule=schedule, chunks=chunks) for each in ("even", "balanced"))
    assert len(found.layers) == 8
    assert found.seconds < even.seconds


def test_layers_that_run_again_are_counted_on_each_stage() -> None:
    """3 of each stage at most, and one stage has 2."""
    found = _found([12, 12, 6, 2], recompute="layers=3")
    layout, seconds = found.layout, found.seconds
    gpus = layout.cluster.gpus * layout.cluster.gpu.peak_of("bf16")
    more = (found.hardware_utilisation - found.flops_utilisation) * seconds * gpus
    layer = 2 * layout.model.layer_weights + layout.model.pair_flops * layout.tokens
    assert more / layout.batch_tokens == pytest.approx((3 + 3 + 3 + 2) * layer, rel=1e-9)


def test_an_answer_has_the_layers_of_each_stage() -> None:
    assert answer_row(row(**FOUR))["layers"] == [8, 8, 8, 8]
    assert sum(answer_row(row(**FOUR, layers="balanced"))["layers"]) == 32


def test_a_device_that_others_wait_for_is_told() -> None:
    told = [reason for reason in reasons(_found("even")) if "balanced" in reason]
    assert len(told) == 1
    assert told[0].startswith("device 3 works ")
    assert not [reason for reason in reasons(_found("balanced")) if "balanced" in reason]


WRONG: dict[str, tuple[object, str]] = {
    "too few": ([8, 8, 8], "stages of 8, 8, 8 layers have 24 in all, the model 32"),
    "too many": ([8] * 5, "stages of 8, 8, 8, 8, 8 layers have 40 in all, the model 32"),
    "stages": ([16, 16], "layers per stage 16, 16 (sum 32, 2 stages) do not hold 32 layers"),
    "negative": ([-1, 11, 11, 11], "layers is [-1, 11, 11, 11]"),
    "word": ("balance", "layers is 'balance'"),
    "number": (32, "layers is 32"),
    "nothing": ([], "layers is []"),
}


@pytest.mark.parametrize("name", WRONG)
def test_counts_that_cannot_be_are_refused(name: str) -> None:
    layers, message = WRONG[name]
    with pytest.raises(ShapeError) as caught:
        estimate(layout_from(row(**FOUR, layers=layers)))
    assert message in str(caught.value)
    assert caught.value.hint
