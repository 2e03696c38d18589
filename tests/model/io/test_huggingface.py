"""Folders that transformers saved are read here, folders saved here are read by transformers."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model.peers import VARIANTS, as_ours, named, peer, stated
from penstock.arch.config import ModelConfig
from penstock.arch.families import from_huggingface
from penstock.arch.parameters import EMBEDDING, HEAD, expected_shapes, layer_parameters
from penstock.errors import FormatError, RunError, ShapeError
from penstock.model.io import safetensors_files
from penstock.model.io.huggingface import (
    read_config,
    read_weights,
    staging_folder,
    write,
    write_index,
    write_shard,
)

pytest.importorskip("safetensors")
pytestmark = pytest.mark.torch

TINY = ModelConfig(2, 8, 12, 2, 1, 4, 10, element_bytes=4)
TIED = ModelConfig(2, 8, 12, 2, 1, 4, 10, element_bytes=4, tied=True)
SHARD = 700
"""Bytes of a file that make several of the small models' tensors."""


def tensors_of(config: ModelConfig, seed: int = 0) -> dict[str, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    shapes = expected_shapes(config)
    return {name: torch.randn(shape, generator=stream) for name, shape in shapes.items()}


def read_all(folder: Path) -> dict[str, Tensor]:
    return dict(read_weights(folder, expected_shapes(read_config(folder))))


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "model", TINY, tensors_of(TINY), torch.float32)
    return tmp_path / "model"


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    write(tmp_path / "sharded", TINY, tensors_of(TINY), torch.float32, shard_bytes=SHARD)
    return tmp_path / "sharded"


@pytest.mark.long
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shard_bytes", [10**9, 10_000])
def test_a_folder_of_transformers_is_read(variant: str, shard_bytes: int, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    theirs = peer(stated(variant))
    theirs.save_pretrained(tmp_path, max_shard_size=shard_bytes)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shard_bytes == 10_000)
    expected = from_huggingface({**stated(variant), "dtype": "float32"})
    assert read_config(tmp_path) == expected
    assert equal(read_all(tmp_path), as_ours(expected, named(theirs)))


@pytest.mark.long
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shard_bytes", [10**9, 10_000])
def test_a_folder_of_ours_is_read_by_transformers(
    variant: str, shard_bytes: int, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = peer(stated(variant))
    config = from_huggingface(stated(variant))
    ours = as_ours(config, named(theirs))
    write(tmp_path / "m", config, ours, torch.float32, shard_bytes=shard_bytes)
    again, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "m", output_loading_info=True, attn_implementation="eager"
    )
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert again.dtype == torch.float32
    tokens = torch.arange(20).view(1, 20)
    with torch.no_grad():
        assert torch.equal(again(tokens).logits, theirs(tokens).logits)


def test_what_is_written_is_read_again(folder: Path, sharded: Path) -> None:
    for place in (folder, sharded):
        assert read_config(place) == TINY
        assert equal(read_all(place), tensors_of(TINY))
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors"}
    sizes = [path.stat().st_size for path in sharded.glob("*.safetensors")]
    assert len(sizes) > 3
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 4 * TINY.parameters
    assert set(index["weight_map"]) == set(expected_shapes(TINY))


def test_a_type_is_written_and_stated(tmp_path: Path) -> None:
    write(tmp_path / "m", TINY, tensors_of(TINY), torch.bfloat16)
    assert read_config(tmp_path / "m").element_bytes == 2
    wanted = {name: tensor.bfloat16() for name, tensor in tensors_of(TINY).items()}
    assert equal(read_all(tmp_path / "m"), wanted)
    with pytest.raises(ShapeError, match="a model is not written as int8"):
        write(tmp_path / "n", TINY, tensors_of(TINY), torch.int8)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_views_of_one_buffer_are_written(tmp_path: Path) -> None:
    flat = torch.randn(TINY.parameters)
    sizes = [torch.Size(shape).numel() for shape in expected_shapes(TINY).values()]
    views = {
        name: part.view(shape)
        for (name, shape), part in zip(expected_shapes(TINY).items(), flat.split(sizes))
    }
    write(tmp_path / "m", TINY, views, torch.float32)
    assert equal(read_all(tmp_path / "m"), views)


def test_tensors_may_come_one_by_one_in_any_order(tmp_path: Path) -> None:
    backwards = list(tensors_of(TINY).items())[::-1]
    write(tmp_path / "m", TINY, iter(backwards), torch.float32, shard_bytes=SHARD)
    assert equal(read_all(tmp_path / "m"), tensors_of(TINY))


def test_only_the_files_of_the_wanted_names_are_opened(sharded: Path) -> None:
    files = json.loads((sharded / "model.safetensors.index.json").read_text())["weight_map"]
    wanted = list(layer_parameters(TINY, 1))
    for path in sharded.glob("*.safetensors"):
        if path.name not in {files[name] for name in wanted}:
            path.unlink()
    assert files[EMBEDDING] not in {path.name for path in sharded.iterdir()}
    found = dict(read_weights(sharded, wanted))
    assert equal(found, {name: tensors_of(TINY)[name] for name in wanted})
    with pytest.raises(RunError, match="cannot be read"):
        dict(read_weights(sharded, [EMBEDDING]))


def test_ranks_write_a_model_together(tmp_path: Path) -> None:
    tensors, folder = tensors_of(TINY), tmp_path / "out" / "m"
    names = list(tensors)
    for number, mine in enumerate((names[:5], names[5:]), 1):
        assert not folder.exists()
        write_shard(folder, TINY, number, 2, {name: tensors[name] for name in mine}, torch.float32)
    write_index(folder, TINY, 2, torch.float32)
    assert equal(read_all(folder), tensors)
    assert [path.name for path in folder.parent.iterdir()] == ["m"]


def test_a_model_that_ranks_wrote_in_part_is_not_completed(tmp_path: Path) -> None:
    tensors, folder = tensors_of(TINY), tmp_path / "m"
    write_shard(folder, TINY, 1, 2, {EMBEDDING: tensors[EMBEDDING]}, torch.float32)
    with pytest.raises(RunError, match=r"model-00002-of-00002\.safetensors cannot be read"):
        write_index(folder, TINY, 2, torch.float32)
    write_shard(folder, TINY, 2, 2, {HEAD: tensors[HEAD]}, torch.float32)
    with pytest.raises(ShapeError, match=r"lacks model\.layers\.0.*and 16 more of the 21 tensors"):
        write_index(folder, TINY, 2, torch.float32)
    write_shard(folder, TINY, 2, 2, {EMBEDDING: tensors[EMBEDDING]}, torch.float32)
    with pytest.raises(ShapeError, match=f"{EMBEDDING} is in model-00001.* and in model-00002"):
        write_index(folder, TINY, 2, torch.float32)
    assert not folder.exists()
    with pytest.raises(ShapeError, match="file 3 of 2"):
        write_shard(folder, TINY, 3, 2, {}, torch.float32)


def test_files_of_an_attempt_that_ended_early_are_not_published(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    write_shard(folder, TINY, 2, 3, {EMBEDDING: torch.zeros(1)}, torch.float32)
    write_shard(folder, TINY, 1, 1, tensors_of(TINY), torch.float32)
    write_index(folder, TINY, 1, torch.float32)
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors"}


def test_a_model_is_replaced_whole_or_stays(folder: Path) -> None:
    def cut_off() -> Iterator[tuple[str, Tensor]]:
        yield from list(tensors_of(TINY, seed=1).items())[:9]

    with pytest.raises(ShapeError, match="lacks"):
        write(folder, TINY, cut_off(), torch.float32)
    assert not staging_folder(folder).exists()
    assert equal(read_all(folder), tensors_of(TINY))
    write(folder, TINY, tensors_of(TINY, seed=1), torch.float32)
    assert equal(read_all(folder), tensors_of(TINY, seed=1))
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_folder_with_anything_else_in_it_is_not_replaced(folder: Path) -> None:
    (folder / "notes.txt").write_text("keep me")
    with pytest.raises(ShapeError, match=r"not a model that could be replaced: notes\.txt"):
        write(folder, TINY, tensors_of(TINY, seed=1), torch.float32)
    with pytest.raises(ShapeError, match="could be replaced: a file"):
        write(folder / "notes.txt", TINY, tensors_of(TINY), torch.float32)
    assert (folder / "notes.txt").read_text() == "keep me"
    assert equal(read_all(folder), tensors_of(TINY))


def test_a_disk_that_is_full_leaves_the_old_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunError, match="cannot be written: No space left on device"):
        write(folder, TINY, tensors_of(TINY, seed=1), torch.float32)
    monkeypatch.undo()
    assert equal(read_all(folder), tensors_of(TINY))


def test_a_wrong_set_of_tensors_is_named(folder: Path, tmp_path: Path) -> None:
    tensors = tensors_of(TINY)
    bias = "model.layers.0.self_attn.o_proj.bias"
    with pytest.raises(ShapeError, match=f"has {bias}, which its model does not have"):
        write(tmp_path / "m", TINY, {**tensors, bias: torch.zeros(8)}, torch.float32)
    missing = {name: tensor for name, tensor in tensors.items() if name != HEAD}
    with pytest.raises(ShapeError, match=f"lacks {HEAD} of the 21 tensors"):
        write(tmp_path / "m", TINY, missing, torch.float32)
    with pytest.raises(ShapeError, match=f"{HEAD} is 10 x 9, but the config makes it 10 x 8"):
        write(tmp_path / "m", TINY, {**tensors, HEAD: torch.zeros(10, 9)}, torch.float32)
    with pytest.raises(ShapeError, match=r"the model has no model\.layers\.2\.mlp\.up"):
        read_weights(folder, ["model.layers.2.mlp.up_proj.weight"])


def test_shapes_that_disagree_with_the_config_are_named(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 16}))
    with pytest.raises(ShapeError, match=r"gate_proj\.weight is 12 x 8, .* makes it 16 x 8"):
        read_all(folder)
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    with pytest.raises(ShapeError, match=r"has model\.layers\.1\..* and 6 more, which its model"):
        read_all(folder)


def save(folder: Path, tensors: dict[str, Tensor]) -> None:
    safetensors_files.save(folder / "model.safetensors", tensors, torch.float32)


def test_a_tied_head_is_left_out_or_equal(tmp_path: Path) -> None:
    tensors, folder = tensors_of(TIED), tmp_path / "m"
    write(folder, TIED, tensors, torch.float32)
    assert equal(read_all(folder), tensors)
    save(folder, {**tensors, HEAD: tensors[EMBEDDING].clone()})
    assert equal(read_all(folder), tensors)
    save(folder, {**tensors, HEAD: tensors[EMBEDDING][:9]})
    with pytest.raises(ShapeError, match=f"{HEAD} is not equal to {EMBEDDING}"):
        read_all(folder)
    save(folder, {**tensors, HEAD: tensors[EMBEDDING] + 1})
    with pytest.raises(ShapeError, match=f"{HEAD} is not equal to {EMBEDDING}"):
        read_all(folder)
    with pytest.raises(ShapeError, match=f"has {HEAD}, but the model ties it to {EMBEDDING}"):
        write(folder, TIED, {**tensors, HEAD: tensors[EMBEDDING]}, torch.float32)


def test_old_files_may_hold_rotary_frequencies(folder: Path) -> None:
    frequencies = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}
    save(folder, {**tensors_of(TINY), **frequencies})
    assert equal(read_all(folder), tensors_of(TINY))


def test_damaged_and_missing_files_are_named(folder: Path, sharded: Path, tmp_path: Path) -> None:
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for damaged in (whole[:-8], whole[:40], b"", b"\xff" * 16, whole[:8] + b"{" + whole[9:20]):
        file.write_bytes(damaged)
        with pytest.raises(RunError, match=r"model\.safetensors cannot be read"):
            read_all(folder)
    file.unlink()
    with pytest.raises(ShapeError, match=r"neither model\.safetensors nor"):
        read_all(folder)
    with pytest.raises(ShapeError, match=r"cannot read .*config\.json': No such file"):
        read_config(tmp_path / "nowhere")
    (folder / "config.json").write_text('{"model_type": }')
    with pytest.raises(FormatError, match="line 1, column 16"):
        read_config(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(FormatError, match="no JSON object"):
        read_config(folder)


def test_an_index_leads_only_into_its_own_folder(sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    files = json.loads(index.read_text())["weight_map"]
    for other in ({**files, HEAD: "../model.safetensors"}, {**files, HEAD: 3}, [], None):
        index.write_text(json.dumps({"weight_map": other}))
        with pytest.raises(ShapeError, match="no weight_map of file names"):
            read_all(sharded)
    index.write_text(json.dumps({"weight_map": {**files, HEAD: files[EMBEDDING]}}))
    with pytest.raises(ShapeError, match=f"has no tensor {HEAD}, though it should"):
        read_all(sharded)


def test_without_the_library_the_extra_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    with pytest.raises(ShapeError, match=r"need the package safetensors(.|\n)*penstock\[hf\]"):
        read_all(folder)
    with pytest.raises(ShapeError, match="need the package safetensors"):
        write(folder.parent / "other", TINY, tensors_of(TINY), torch.float32)


def test_a_leftover_of_an_earlier_attempt_is_no_obstacle(folder: Path) -> None:
    shutil.copytree(folder, staging_folder(folder))
    (staging_folder(folder) / "junk").write_text("")
    write(folder, TINY, tensors_of(TINY, seed=2), torch.float32)
    assert equal(read_all(folder), tensors_of(TINY, seed=2))
    assert not staging_folder(folder).exists()
