"""A kind of layer is a record: whoever asks a model about its layers asks the records."""

from dataclasses import dataclass, replace
from functools import cached_property

import pytest

from loops import each
from penstock.arch.config import ModelConfig
from penstock.arch.layers.parameter import INPUTS, InitialValue, Parameter
from penstock.arch.layers.record import LayerRecord
from penstock.arch.parameter_layout import lay_out
from penstock.arch.parameters import elements, expected_shapes, layer_parameters
from penstock.arch.presets import MODELS, model
from penstock.core.shape import Shape
from penstock.cost.hardware import HARDWARE
from penstock.cost.temporary import backward_bytes
from penstock.cost.transformer import TransformerCost
from penstock.cost.workload import Workload
from penstock.plan.stage_parameters import stage_elements
from penstock.schedules import build

PLAIN = ModelConfig(4, 8, 24, 4, 2, 2, 100)
SIZE = 6


@dataclass(frozen=True)
class Adapter(LayerRecord):
    """A kind of layer that nobody has heard of: one matrix, one scale, costs of its own."""

    hidden: int

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("adapter.scale", (SIZE,), InitialValue.ONES),
            Parameter(
                "adapter.weight", (self.hidden, SIZE), InitialValue.NORMAL_TO_RESIDUAL, axis=INPUTS
            ),
        )

    @property
    def flops_per_pair(self) -> int:
        return 10

    @property
    def kv_bytes(self) -> int:
        return 3

    @property
    def saved_bytes(self) -> int:
        return 5

    @property
    def sliced_bytes(self) -> int:
        return 11

    @property
    def stash_bytes(self) -> int:
        return 7

    @property
    def backward_bytes(self) -> int:
        return 100_000


class Adapted(ModelConfig):
    """A model whose layers end with an adapter."""

    @cached_property
    def layer_records(self) -> tuple[LayerRecord, ...]:
        return (*super().layer_records, Adapter(self.hidden))


ADAPTED = Adapted(**{name: getattr(PLAIN, name) for name in PLAIN.__dataclass_fields__})
NAMES = {f"model.layers.{layer}.adapter.{x}" for layer in range(4) for x in ("scale", "weight")}


def test_a_new_kind_is_listed_counted_and_laid_out() -> None:
    shapes = expected_shapes(ADAPTED)
    assert set(shapes) - set(expected_shapes(PLAIN)) == NAMES
    assert list(layer_parameters(ADAPTED, 3))[-2:] == sorted(n for n in NAMES if ".3." in n)
    more = 4 * (SIZE + 8 * SIZE)
    assert elements(shapes) == ADAPTED.parameters == PLAIN.parameters + more
    assert ADAPTED.layer_weights - PLAIN.layer_weights == 8 * SIZE
    part = lay_out(layer_parameters(ADAPTED, 0), 1, 3).parts["model.layers.0.adapter.weight"]
    assert (part.local_shape, part.start, part.end) == ((8, 2), 2, 4)


def test_a_new_kind_is_priced() -> None:
    shape = Shape(2, 2, (2, 2))
    schedule = build("seq1f1b", devices=2, microbatches=2, slices=2)
    plain, adapted = (Workload.of(shape, config, (3, 5)) for config in (PLAIN, ADAPTED))
    forward = schedule.table.of_kinds("F") & (schedule.table.stage == 0)
    more = adapted.work(schedule).linear - plain.work(schedule).linear
    assert set(more[forward].tolist()) == {2 * n * 2 * 8 * SIZE for n in (3, 5)}
    pairs = adapted.work(schedule).attention - plain.work(schedule).attention
    assert set(pairs[forward].tolist()) == {2 * 5 * half for half in (9, 5 * (16 - 5))}
    for size, number in (("act", 5 + 11), ("stash", 7), ("kv", 3), ("dkv", 3)):
        grown = adapted.bytes(schedule, size) - plain.bytes(schedule, size)
        tokens = (3, 0) if size == "dkv" else (3, 5)  # nobody leaves gradients to the last slice
        assert set(grown[forward].tolist()) == {2 * number * n for n in tokens}, size
    assert backward_bytes(ADAPTED) == 100_000
    assert stage_elements(adapted, 0) - stage_elements(plain, 0) == 2 * (SIZE + 8 * SIZE)


def test_a_new_kind_takes_time() -> None:
    schedule = build("1f1b", devices=2, microbatches=2)
    times = [
        TransformerCost.of(schedule.shape, config, HARDWARE["h200"], (2048,)).durations(schedule)
        for config in (PLAIN, ADAPTED)
    ]
    compute = schedule.table.of_kinds("FB")
    assert (times[1].ticks[compute] > times[0].ticks[compute]).all()


@pytest.mark.torch
def test_a_new_kind_starts_as_its_record_says() -> None:
    import torch

    from penstock.model.io.initial_weights import SPREAD, initialise

    scale, weight = torch.zeros(SIZE), torch.zeros(200, 200)
    initialise(ADAPTED, "model.layers.2.adapter.scale", scale, seed=1)
    initialise(ADAPTED, "model.layers.2.adapter.weight", weight, seed=1)
    assert scale.tolist() == [1.0] * SIZE
    assert float(weight.std()) == pytest.approx(SPREAD / 8**0.5, rel=0.03)


@each("name", MODELS)
def test_weights_are_what_a_token_is_multiplied_by(name: str) -> None:
    config = model(name)
    unmet = (config.parameters - config.active_parameters) // config.layers
    assert bool(unmet) == (config.mixture is not None)
    for kind in config.kinds:
        assert kind.layer_flops == 2 * (kind.layer_weights - unmet)
    layers = sum(config.like(layer).layer_flops for layer in range(config.layers))
    met = config.layers_met() / config.layers  # less than all where tokens are left out
    assert config.flops_per_token == round(met * layers) + 2 * config.head_weights


def test_a_plain_mlp_has_no_gate() -> None:
    gated, plain = model("tiny"), replace(model("tiny"), gated=False)
    assert gated.layer_weights - plain.layer_weights == gated.hidden * gated.ffn
    assert gated.saved_bytes - plain.saved_bytes == gated.ffn * gated.element_bytes
