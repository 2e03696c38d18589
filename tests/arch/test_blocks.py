"""Layers of a model that differ: what is counted, named, shared, read, written and refused."""

from dataclasses import replace
from typing import Any

import pytest

from loops import each
from penstock.arch.block_rules import refuse_cut
from penstock.arch.blocks import LayerBlock
from penstock.arch.config import ModelConfig
from penstock.arch.families import from_huggingface, to_huggingface
from penstock.arch.mesh_shape import MeshShape, refuse_misfits
from penstock.arch.mixture import ExpertMixture
from penstock.arch.parameters import elements, expected_shapes, layer_parameters
from penstock.arch.presets import model
from penstock.errors import ShapeError

FUSED = model("tiny-fused")
PLAIN = model("tiny")


def test_a_block_without_attention_has_an_mlp_and_its_norm() -> None:
    names = [name.removeprefix("model.layers.2.") for name in layer_parameters(FUSED, 2)]
    mlp = [f"mlp.{matrix}_proj.weight" for matrix in ("gate", "up", "down")]
    assert names == ["post_attention_layernorm.weight", *mlp]
    assert layer_parameters(FUSED, 2)[f"model.layers.2.{mlp[0]}"].shape == (512, 64)


def test_sums_are_over_all_layers() -> None:
    assert FUSED.parameters == elements(expected_shapes(FUSED))
    wider = 3 * 64 * (512 - 192) * 2
    attentions = PLAIN.attention.weights * 2 * 2
    assert FUSED.flops_per_token == PLAIN.flops_per_token + wider - attentions
    assert FUSED.flops_per_pair == PLAIN.flops_per_pair // 2
    assert FUSED.trained_parameters == FUSED.parameters


def test_a_model_of_blocks_that_are_alike_is_a_plain_one() -> None:
    same = replace(PLAIN, blocks=(LayerBlock(192),))
    assert expected_shapes(same) == expected_shapes(PLAIN)
    assert same.parameters == PLAIN.parameters
    assert len(same.kinds) == 1


def test_kinds_are_counted() -> None:
    counts = FUSED.counts(range(4))
    assert [(kind.ffn, kind.attends, count) for kind, count in counts.items()] == [
        (192, True, 2),
        (512, False, 1),
        (192, False, 1),
    ]
    assert FUSED.attending(range(4)) == [0, 1]
    with pytest.raises(ShapeError, match="layers of the model are of 3 kinds"):
        assert FUSED.layer_records


def test_ranks_share_every_width() -> None:
    shared = FUSED.share(1, 3)
    assert [block.ffn for block in shared.blocks] == [64, 64, 171, 64]
    refuse_misfits(FUSED, MeshShape(tensor=4))
    narrow = replace(FUSED, blocks=(LayerBlock(192), LayerBlock(3, False)))
    with pytest.raises(ShapeError, match="the model has 3 columns of the MLP"):
        refuse_misfits(narrow, MeshShape(tensor=4))


def test_other_programs_refuse_a_model_with_blocks_by_its_name() -> None:
    written = to_huggingface(FUSED)
    assert written["model_type"] == "penstock_llama"
    assert written["block_configs"][2] == {
        "attention": False,
        "intermediate_size": 512,
        "fused": [192, 128, 192],
    }
    assert from_huggingface(written) == FUSED


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a plain family": ({"model_type": "llama"}, "model_type is 'llama' and block_configs"),
    "no blocks": ({"block_configs": None}, "block_configs is None"),
    "too many": ({"num_hidden_layers": 3}, "has 4 blocks, but num_hidden_layers is 3"),
    "no width": ({"block_configs": [{"attention": True}]}, "block 0 is"),
    "another key": (
        {"block_configs": [{"intermediate_size": 4, "heads": 2}]},
        "block 0 is",
    ),
    "a wide part": (
        {"block_configs": [{"intermediate_size": 4, "attention": False, "fused": [3, 2]}]},
        r"block 0: MLPs of 3, 2 columns \(5 together\) are fused to one of 4",
    ),
    "a run with attention": (
        {"block_configs": [{"intermediate_size": 4, "fused": [2, 2]}]},
        "a layer with attention has 2 fused MLPs",
    ),
    "no number": ({"block_configs": [{"intermediate_size": "4"}]}, "block 0: ffn is"),
    "no truth": ({"block_configs": [{"intermediate_size": 4, "attention": 1}]}, "attention is 1"),
    "no list": (
        {"block_configs": [{"intermediate_size": 4, "attention": False, "fused": 3}]},
        "fused is 3",
    ),
}


@each("name", WRONG)
def test_blocks_that_make_no_model_are_refused(name: str) -> None:
    changed, message = WRONG[name]
    with pytest.raises(ShapeError, match=message):
        from_huggingface({**to_huggingface(FUSED), **changed})


def test_blocks_beside_experts_and_cuts_at_attention_are_refused() -> None:
    with pytest.raises(ShapeError, match="blocks of different layers, and experts"):
        replace(PLAIN, mixture=ExpertMixture(4, 2), blocks=(LayerBlock(192),))
    with pytest.raises(ShapeError, match="in this model layer 2 has none"):
        refuse_cut(FUSED)
    with pytest.raises(ShapeError, match="in this model layers differ"):
        refuse_cut(replace(PLAIN, blocks=(LayerBlock(192), LayerBlock(64))))
    refuse_cut(replace(PLAIN, blocks=(LayerBlock(64),)))
    wrong: Any = ("attention",)
    with pytest.raises(ShapeError, match="give a LayerBlock for each layer"):
        ModelConfig(4, 64, 192, 4, 2, 16, 256, blocks=wrong)
