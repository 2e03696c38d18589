"""Experts in configurations: what is read and written, counted, and refused."""

from dataclasses import replace
from typing import Any

import pytest

from loops import each
from penstock.arch.config import ModelConfig
from penstock.arch.families import from_huggingface, to_huggingface
from penstock.arch.layers.expert_mlp import ExpertMlp
from penstock.arch.layers.parameter import INPUTS, OUTPUTS
from penstock.arch.mesh_shape import MeshShape, refuse_misfits, refuse_unpriced
from penstock.arch.mixture import ExpertMixture, share_experts
from penstock.arch.parameters import expected_shapes, own_experts, stage_parameters
from penstock.arch.presets import model
from penstock.errors import ShapeError

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
}
SMALL = ModelConfig(2, 8, 6, 2, 1, 4, 9, mixture=ExpertMixture(5, 2, balance=0.1))
PUBLISHED = {
    "mixtral-8x7b": (46_702_792_704, 12_879_925_248),
    "qwen3-30b-a3b": (30_532_122_624, 3_353_032_704),
}
"""Parameters, and those that one token meets."""


@each("name", PUBLISHED)
def test_presets_have_the_published_numbers_of_parameters(name: str) -> None:
    config = model(name)
    assert (config.parameters, config.active_parameters) == PUBLISHED[name]
    assert from_huggingface(to_huggingface(config)) == config


def test_all_experts_are_stored_and_those_of_a_token_are_computed() -> None:
    record = ExpertMlp(8, 6, ExpertMixture(5, 2), 2)
    assert record.weights == 5 * 8 + 5 * 3 * 8 * 6
    assert record.flops_per_token == 2 * (5 * 8 + 2 * 3 * 8 * 6)
    assert record.weights_along(OUTPUTS) == 5 * 2 * 8 * 6
    assert record.weights_along(INPUTS) == 5 * 8 * 6
    assert sum(each.elements for each in record.parameters) == record.weights


def test_each_family_has_its_own_names() -> None:
    other = replace(SMALL, qk_norm=True, mixture=ExpertMixture(5, 2, family="qwen3_moe"))
    assert expected_shapes(SMALL)["model.layers.1.block_sparse_moe.experts.4.w2.weight"] == (8, 6)
    assert expected_shapes(other)["model.layers.1.mlp.experts.4.up_proj.weight"] == (6, 8)


def test_the_auxiliary_loss_is_that_of_a_file_which_asks_for_it() -> None:
    stated = {"model_type": "mixtral", **SIZES, "router_aux_loss_coef": 0.5}
    mixture = from_huggingface(stated).mixture
    assert mixture == ExpertMixture(8, 2, balance=0.0)
    asked = from_huggingface({**stated, "output_router_logits": True}).mixture
    assert asked == ExpertMixture(8, 2, balance=0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mlp_only_layers": [1]}, "mlp_only_layers"),
        ({"decoder_sparse_step": 2}, "every layer has experts"),
        ({"num_experts_per_tok": 129}, "goes to 129 of 128 experts"),
        ({"num_experts": 0}, "experts is 0"),
        ({"num_experts": "many"}, "experts is 'many'"),
        ({"norm_topk_prob": 1}, "norm_topk_prob is 1"),
        ({"output_router_logits": True, "router_aux_loss_coef": -1}, "balance is -1"),
    ],
)
def test_files_that_state_other_experts_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message) as refusal:
        from_huggingface({"model_type": "qwen3_moe", **SIZES, **changes})
    assert refusal.value.hint


@pytest.mark.parametrize("part", [{"norms": "both"}, {"activation": "gelu_tanh"}, {"gated": False}])
def test_parts_that_layers_with_experts_do_not_have_are_refused(part: dict[str, Any]) -> None:
    with pytest.raises(ShapeError, match="but the model has experts"):
        replace(SMALL, **part)


def test_weights_that_are_not_divided_cannot_be_written_for_mixtral() -> None:
    plain = replace(SMALL, mixture=ExpertMixture(5, 2, renormalised=False))
    with pytest.raises(ShapeError, match="cannot state") as refusal:
        to_huggingface(plain)
    assert "qwen3_moe" in refusal.value.hint


def test_replicas_that_share_experts_hold_each_of_them_once_and_all_of_the_rest() -> None:
    parameters = stage_parameters(SMALL, range(2), 0, 1)
    shares = [own_experts(parameters, index, 3) for index in range(3)]
    held = [name for share in shares for name, each in share.items() if each.dealt_over == 3]
    assert sorted(held) == sorted(
        name for name, each in parameters.items() if each.expert is not None
    )
    assert {
        len(share) - sum(each.dealt_over == 3 for each in share.values()) for share in shares
    } == {len(parameters) - len(held)}
    record = ExpertMlp(8, 6, share_experts(ExpertMixture(5, 2), 3), 2)
    assert record.weights == 5 * 8 + 2 * 3 * 8 * 6
    assert record.flops_per_token == ExpertMlp(8, 6, ExpertMixture(5, 2), 2).flops_per_token


def test_a_mesh_that_cannot_share_experts_is_refused() -> None:
    with pytest.raises(ShapeError, match="experts is 2, which does not divide the 3 replicas"):
        MeshShape(replicas=3, experts=2)
    with pytest.raises(ShapeError, match="the model has 5 experts"):
        refuse_misfits(SMALL, MeshShape(replicas=6, experts=6))
    with pytest.raises(ShapeError, match="the model has no experts") as refusal:
        refuse_misfits(replace(SMALL, mixture=None), MeshShape(replicas=2, experts=2))
    assert refusal.value.hint == "set mesh.experts to 1"
    with pytest.raises(ShapeError, match="cannot be predicted"):
        refuse_unpriced(MeshShape(replicas=2, experts=2))
