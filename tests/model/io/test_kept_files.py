"""What stands beside the weights of a model comes along when it is written again."""

import json
import os
from pathlib import Path

import pytest
import torch

from model.io.test_huggingface import TINY, tensors_of
from penstock.arch.families import to_huggingface
from penstock.errors import ShapeError
from penstock.model.io.huggingface import CONFIG, write
from penstock.model.io.kept_files import kept_of_model, kept_of_tokenizer, stored_dtype

pytest.importorskip("safetensors")
pytestmark = pytest.mark.torch

BESIDE = {
    "generation_config.json": '{"eos_token_id": [2, 7]}',
    "tokenizer.json": "{}",
    "tokenizer.model": "pieces",
    "notes/of the author.txt": "keep me",
}
WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json", "original/weights.pth", ".hidden")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder in bfloat16, with ids of tokens and files that training knows nothing of."""
    folder = tmp_path / "source"
    write(folder, TINY, tensors_of(TINY), torch.bfloat16)
    stated = {**to_huggingface(TINY), "bos_token_id": 1, "eos_token_id": [2, 7]}
    (folder / CONFIG).write_text(json.dumps({**stated, "torch_dtype": "bfloat16"}))
    for name, content in {**BESIDE, **dict.fromkeys(WEIGHTS, "weights")}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    os.mkfifo(folder / "pipe")
    return folder


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_everything_but_the_weights_is_kept(source: Path, tmp_path: Path) -> None:
    kept, folder = kept_of_model(source), tmp_path / "out"
    write(folder, TINY, tensors_of(TINY, seed=1), torch.bfloat16, kept=kept)
    assert names(folder) == {*BESIDE, CONFIG, "model.safetensors"}
    assert all((folder / name).read_text() == text for name, text in BESIDE.items())
    assert json.loads((folder / CONFIG).read_text()) == json.loads((source / CONFIG).read_text())


def test_the_config_says_the_type_that_is_stored(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write(folder, TINY, tensors_of(TINY), torch.float32, kept=kept_of_model(source))
    stated = json.loads((folder / CONFIG).read_text())
    assert (stated["torch_dtype"], stated["eos_token_id"]) == ("float32", [2, 7])
    assert (stored_dtype(source), stored_dtype(folder)) == ("bfloat16", "float32")
    for key in ("torch_dtype", "dtype"):
        stated.pop(key, None)
    (source / CONFIG).write_text(json.dumps(stated))
    assert stored_dtype(source) == "bfloat16"  # as the tensors themselves are


def test_what_was_kept_may_be_replaced_and_nothing_else(source: Path, tmp_path: Path) -> None:
    kept, folder = kept_of_model(source), tmp_path / "out"
    for seed in range(2):
        write(folder, TINY, tensors_of(TINY, seed), torch.float32, kept=kept)
    (folder / "mine.txt").write_text("")
    with pytest.raises(ShapeError, match=r"could be replaced: mine\.txt"):
        write(folder, TINY, tensors_of(TINY), torch.float32, kept=kept)


def test_the_folder_that_a_model_came_from_is_not_replaced(source: Path) -> None:
    kept = kept_of_model(source)
    (source / "pipe").unlink()
    for name in WEIGHTS:
        (source / name).unlink()
    (source / "original").rmdir()
    with pytest.raises(ShapeError, match="the model came from it"):
        write(source, TINY, tensors_of(TINY), torch.float32, kept=kept)


def test_a_tokenizer_is_a_file_or_the_files_of_a_folder(source: Path) -> None:
    assert set(kept_of_tokenizer(source).files) == {"tokenizer.json", "tokenizer.model"}
    file = source / "notes/of the author.txt"
    assert kept_of_tokenizer(file).files == {"tokenizer.json": file}


def test_numbers_that_a_type_does_not_hold_are_refused(tmp_path: Path) -> None:
    tensors = tensors_of(TINY)
    next(iter(tensors.values()))[0, 0] = 1e6
    with pytest.raises(ShapeError, match=r"has numbers up to 1e\+06, beyond those of float16"):
        write(tmp_path / "out", TINY, tensors, torch.float16)
