"""Adapters as records: how many elements, how ranks share them, what is frozen beside them."""

from dataclasses import replace
from fractions import Fraction

import pytest

from penstock.arch.config import ModelConfig
from penstock.arch.layers.parameter import InitialValue
from penstock.arch.lora import LAYER_TARGETS, Lora
from penstock.arch.parameters import (
    EMBEDDING,
    HEAD,
    between_parameters,
    layer_parameters,
    model_parameters,
    stage_layout,
    stage_parameters,
    trained_names,
)
from penstock.arch.presets import MODELS
from penstock.core.shape import Shape
from penstock.core.table import LETTERS
from penstock.cost.workload import Workload
from penstock.errors import ShapeError

TINY = replace(MODELS["tiny"], lora=Lora(4, 8.0))
SEVEN = replace(MODELS["llama-7b"], lora=Lora(16))


def _with(model: str, rank: int, *targets: str) -> ModelConfig:
    return replace(MODELS[model], lora=Lora(rank, targets=targets or LAYER_TARGETS))


def test_a_matrix_of_d_outputs_and_k_inputs_has_r_times_d_plus_k_elements() -> None:
    """The figures that PEFT prints for Llama 7B."""
    assert _with("llama-7b", 8, "q_proj", "v_proj").trained_parameters == 4_194_304
    assert SEVEN.trained_parameters == 39_976_960
    assert SEVEN.parameters == MODELS["llama-7b"].parameters + SEVEN.trained_parameters


def test_only_adapters_are_trained() -> None:
    names = trained_names(TINY)
    assert len(names) == 2 * len(LAYER_TARGETS) * TINY.layers
    assert all(".lora_A." in name or ".lora_B." in name for name in names)
    frozen = {name for name, each in model_parameters(TINY).items() if not each.trained}
    assert frozen == set(model_parameters(MODELS["tiny"]))


def test_adapters_start_as_those_of_peft() -> None:
    found = layer_parameters(TINY, 0)
    prefix = "model.layers.0.mlp.down_proj"
    down, up = found[f"{prefix}.lora_A.weight"], found[f"{prefix}.lora_B.weight"]
    assert (down.shape, down.start) == ((4, 192), InitialValue.UNIFORM)
    assert (up.shape, up.start) == ((64, 4), InitialValue.ZEROS)


@pytest.mark.parametrize("rank", [0, 1])
def test_tensor_ranks_share_an_adapter_with_its_matrix(rank: int) -> None:
    """The whole A and some rows of B where outputs are split, the other way round for inputs."""
    layout = stage_layout(TINY, layer_parameters(TINY, 0), rank, 2)
    shapes = {
        name.removeprefix("model.layers.0."): part.local_shape
        for name, part in layout.parts.items()
    }
    assert shapes["mlp.up_proj.lora_A.weight"] == (4, 64)
    assert shapes["mlp.up_proj.lora_B.weight"] == (96, 4)
    assert shapes["mlp.down_proj.lora_A.weight"] == (4, 96)
    assert shapes["mlp.down_proj.lora_B.weight"] == (64, 4)
    assert shapes["self_attn.k_proj.lora_B.weight"] == (16, 4)
    added = {
        name.removeprefix("model.layers.0.")
        for name, part in layout.parts.items()
        if part.is_parted({"shares", "heads"})
    }
    columns = {f"self_attn.{each}_proj.lora_A.weight" for each in "qkv"}
    columns |= {f"mlp.{each}_proj.lora_A.weight" for each in ("gate", "up")}
    assert added == columns | {"self_attn.o_proj.lora_B.weight", "mlp.down_proj.lora_B.weight"}


def test_a_frozen_head_beside_its_embedding_has_no_values_of_its_own() -> None:
    tied = replace(TINY, tied=True)
    layout = stage_layout(tied, stage_parameters(tied, range(4), 0, 1))
    frozen = layout.frozen
    assert frozen is not None
    assert frozen.shared == {HEAD: EMBEDDING}
    assert frozen.elements - frozen.stored == 256 * 64
    assert layout.elements == tied.trained_parameters


def test_adapters_are_on_the_side_of_attention_on_which_their_matrix_is() -> None:
    front = [n for n in between_parameters(TINY, 0) if "lora" in n]
    assert {name.split(".")[-3] for name in front} == {"q_proj", "k_proj", "v_proj"}
    last = [n for n in between_parameters(TINY, TINY.layers) if "lora" in n]
    behind = {*LAYER_TARGETS} - {"q_proj", "k_proj", "v_proj"}
    assert {name.split(".")[-3] for name in last} == behind


def _products(model: ModelConfig) -> dict[str, int]:
    """FLOPs of one token in the products of each kind of op, on a stage of one layer in between."""
    workload = Workload(replace(model, layers=3), ((8,),), (1, 1, 1))
    linear = workload.rates(Shape(3, 3, (1,))).linear
    return {kind: int(linear[LETTERS.index(kind), 1]) for kind in "FIWB"}


def test_the_backward_of_frozen_weights_has_input_gradients_alone() -> None:
    """Two thirds of full training, and the adapters' own products."""
    full, lora = _products(MODELS["llama-7b"]), _products(SEVEN)
    adapters = 2 * SEVEN.layer_trained
    again = 2 * 16 * (5 * 4096 + 4096 + 11008)
    assert lora["F"] == full["F"] + adapters
    assert lora["I"] == full["I"] + adapters + again
    assert lora["W"] == adapters
    assert lora["B"] == lora["I"] + lora["W"]
    frozen = (lora["F"] - adapters) + (lora["I"] - adapters - again)
    assert Fraction(frozen, full["F"] + full["B"]) == Fraction(2, 3)


def test_model_flops_of_a_step_are_counted_once() -> None:
    full, lora = MODELS["llama-7b"], SEVEN
    assert full.step_flops_per_token == 3 * full.flops_per_token
    base = 2 * full.flops_per_token
    assert lora.step_flops_per_token == base + 3 * 2 * lora.trained_parameters


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rank": 0}, "the rank of LoRA is 0"),
        ({"rank": 4, "alpha": 0.0}, "alpha of LoRA is 0.0"),
        ({"rank": 4, "targets": ()}, "LoRA has no targets"),
        ({"rank": 4, "targets": ("embed_tokens",)}, "LoRA has no target 'embed_tokens'"),
        ({"rank": 4, "targets": ("q_proj", "q_proj")}, "LoRA has a target twice"),
    ],
)
def test_what_is_no_adapter_is_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        Lora(**given)  # type: ignore[arg-type]


def test_a_head_with_an_adapter_counts_it_in_elements_and_flops() -> None:
    """r (V + h) elements, met by every token in the product and in both gradients."""
    plain, adapted = _with("llama-7b", 8, "q_proj"), _with("llama-7b", 8, "q_proj", "lm_head")
    more = 8 * (32000 + 4096)
    assert adapted.head_adapters == adapted.trained_parameters - plain.trained_parameters == more
    assert adapted.parameters - plain.parameters == more
    assert adapted.step_flops_per_token - plain.step_flops_per_token == 6 * more
    assert {*trained_names(adapted)} - {*trained_names(plain)} == {
        "lm_head.lora_A.weight",
        "lm_head.lora_B.weight",
    }


def test_a_tied_head_has_no_adapter() -> None:
    with pytest.raises(ShapeError, match="tied to the embedding"):
        replace(MODELS["tiny"], tied=True, lora=Lora(2, targets=("lm_head",)))
