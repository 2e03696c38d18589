"""FFN Fusion, "It works when" 2: a checkpoint that is fused and unfused is the same to the bit."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from fusion.samples import run_model
from loops import each
from penstock.arch.config import ModelConfig
from penstock.arch.parameters import expected_shapes
from penstock.errors import PenstockError
from penstock.fusion.fused_folder import APART, fuse_folder, unfuse_folder
from penstock.fusion.fusion_plan import FusionPlan, fused_model, read_fusion_plan
from penstock.model.io.huggingface import read_config, read_weights, write
from penstock.model.io.safetensors_files import read_json

pytestmark = pytest.mark.torch

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def random_tensors(model: ModelConfig, dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: torch.randn(shape).to(dtype) for name, shape in expected_shapes(model).items()}


def stored(folder: Path) -> dict[str, Tensor]:
    return dict(read_weights(folder, expected_shapes(read_config(folder))))


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """To the bit, with the sign of zeros."""
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return {*one} == {*other} and all(
        tensor.view(whole[tensor.element_size()]).equal(
            other[name].view(whole[tensor.element_size()])
        )
        for name, tensor in one.items()
    )


@each("norm", ("last", "own"))
@each("dtype", DTYPES)
def test_a_folder_comes_back_as_it_was(tmp_path: Path, norm: str, dtype: torch.dtype) -> None:
    here = tmp_path / f"{norm} {dtype}"
    model = run_model((8, 5, 7, 8))
    tensors = random_tensors(model, dtype)
    for name, tensor in tensors.items():
        if name.endswith("norm.weight"):  # nothing can be divided by these
            tensor[0], tensor[1], tensor[2] = 0.0, -0.0, 1e-7
    write(here / "model", model, tensors, dtype)
    plan = read_fusion_plan(f"fuse=1-3 norm={norm} multiple=16")
    fuse_folder(here / "model", plan, here / "fused")
    fused = read_config(here / "fused")
    assert fused.block(1).fused == (8, 5, 7)
    assert (fused.block(1).ffn, fused.layers) == (32, 4)
    unfuse_folder(here / "fused", here / "again")
    assert same(stored(here / "again"), tensors)
    assert read_json(here / "again/config.json") == read_json(here / "model/config.json")


def test_attention_is_removed_first_and_does_not_come_back(tmp_path: Path) -> None:
    model = run_model((8, 5))
    tensors = random_tensors(model, torch.float32)
    write(tmp_path / "model", model, tensors, torch.float32)
    plan = read_fusion_plan("remove=3 fuse=1-2")
    fuse_folder(tmp_path / "model", plan, tmp_path / "fused")
    fused = read_config(tmp_path / "fused")
    assert [block.attention for block in fused.blocks] == [True, False, False]
    assert fused == fused_model(
        read_config(tmp_path / "model"), read_fusion_plan("remove=3 fuse=1-2")
    )
    unfuse_folder(tmp_path / "fused", tmp_path / "again")
    left = {
        name: tensor
        for name, tensor in tensors.items()
        if not name.startswith(("model.layers.3.self_attn", "model.layers.3.input"))
    }
    assert same(stored(tmp_path / "again"), left)


def test_without_what_was_kept_apart_parts_have_the_norm_of_the_run(tmp_path: Path) -> None:
    model = run_model((8, 5))
    tensors = random_tensors(model, torch.float32)
    write(tmp_path / "model", model, tensors, torch.float32)
    fuse_folder(tmp_path / "model", read_fusion_plan("fuse=1-2"), tmp_path / "fused")
    (tmp_path / "fused" / APART).unlink()
    unfuse_folder(tmp_path / "fused", tmp_path / "again")
    found, name = stored(tmp_path / "again"), "model.layers.{}.post_attention_layernorm.weight"
    assert found[name.format(1)].equal(tensors[name.format(2)])
    up = "model.layers.1.mlp.up_proj.weight"
    assert found[up].equal(tensors[up])


def test_other_files_go_along_and_the_source_is_never_written_over(tmp_path: Path) -> None:
    model = run_model((8, 5))
    write(tmp_path / "model", model, random_tensors(model, torch.float32), torch.float32)
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    plan = FusionPlan(fuse=(range(1, 3),))
    fuse_folder(tmp_path / "model", plan, tmp_path / "fused")
    fuse_folder(tmp_path / "model", plan, tmp_path / "fused")  # ours, so it may be replaced
    assert (tmp_path / "fused" / "tokenizer.json").read_text() == "{}"
    with pytest.raises(PenstockError, match="the model came from it"):
        fuse_folder(tmp_path / "model", plan, tmp_path / "model")
    with pytest.raises(PenstockError, match="no layer of the model, which has 4, is fused"):
        unfuse_folder(tmp_path / "model", tmp_path / "again")
    assert not (tmp_path / "again").exists()


REFUSED = {
    "fuse=1-9": "layer 9, but the model has 4 layers",
    "remove=7": "layer 7, but the model has 4 layers",
    "fuse=0-1": "layer 0 has attention",
    "fuse=1-1": "has 1 layers",
    "fuse=1-2,2-3": "layer 3 has attention",
    "remove=3 fuse=1-2,2-3": "have layers in common",
    "fuse=1-2 norm=first": "norm='first'",
    "fuse=two": "fuse='two'",
    "keep=1": "the plan has 'keep=1'",
    "fuse=1-2 fuse=1-2": "the plan has 'fuse=1-2'",
    "multiple=0": "multiple='0'",
}


@each("text", REFUSED)
def test_plans_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(PenstockError, match=REFUSED[text]):
        fused_model(run_model((8, 5)), read_fusion_plan(text))


def test_runs_with_norms_behind_blocks_or_fused_already_are_refused() -> None:
    plan = FusionPlan(fuse=(range(1, 3),))
    with pytest.raises(PenstockError, match="norms after its blocks cannot be fused"):
        fused_model(run_model((8, 5), norms="after"), plan)
    twice = fused_model(run_model((8, 5, 7)), plan)
    with pytest.raises(PenstockError, match="layer 1 is fused already"):
        fused_model(twice, plan)
