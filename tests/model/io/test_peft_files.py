"""Adapters in the files of PEFT: names, shapes, keys, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model.samples import tiny
from penstock.arch.lora import Lora
from penstock.arch.parameters import expected_shapes, trained_names
from penstock.arch.peft_keys import from_peft, to_peft
from penstock.errors import PenstockError
from penstock.model.io.peft_files import read_adapter_config, read_adapters, write_adapters
from penstock.model.io.safetensors_files import shapes_in

pytestmark = pytest.mark.torch

LORA = Lora(3, 6.0, ("q_proj", "down_proj"))
MODEL = replace(tiny(), lora=LORA)


def _tensors() -> dict[str, Tensor]:
    shapes = expected_shapes(MODEL)
    return {name: torch.randn(shapes[name]) for name in trained_names(MODEL)}


def test_names_shapes_and_keys_are_those_of_peft(tmp_path: Path) -> None:
    write_adapters(tmp_path / "out", LORA, _tensors().items(), torch.float32, "models/base")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    first = "base_model.model.model.layers.0."
    found = shapes_in(tmp_path / "out" / "adapter_model.safetensors")
    assert {name: shape for name, shape in found.items() if name.startswith(first)} == {
        f"{first}self_attn.q_proj.lora_A.weight": (3, 12),
        f"{first}self_attn.q_proj.lora_B.weight": (24, 3),
        f"{first}mlp.down_proj.lora_A.weight": (3, 20),
        f"{first}mlp.down_proj.lora_B.weight": (12, 3),
    }
    assert len(found) == 8
    stated = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert (stated["peft_type"], stated["r"], stated["lora_alpha"]) == ("LORA", 3, 6)
    assert stated["base_model_name_or_path"] == "models/base"


def test_what_is_written_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    tensors = _tensors()
    for _ in range(2):  # the second replaces the first
        write_adapters(tmp_path / "out", LORA, tensors.items(), torch.float32)
    assert {*read_adapter_config(tmp_path / "out").targets} == {*LORA.targets}
    found = dict(read_adapters(tmp_path / "out", MODEL))
    assert found.keys() == tensors.keys()
    assert all(found[name].equal(tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Lora(4, 6.0, LORA.targets), "adapters of rank 3"),
        (Lora(3, 6.0), "adapters of rank 3"),
        (Lora(3, 9.0, LORA.targets), "adapters with alpha 6, the run 9"),
    ],
)
def test_adapters_of_another_size_are_refused(tmp_path: Path, other: Lora, words: str) -> None:
    write_adapters(tmp_path / "out", LORA, _tensors().items(), torch.float32)
    with pytest.raises(PenstockError, match=words):
        list(read_adapters(tmp_path / "out", replace(MODEL, lora=other)))


def test_adapters_of_another_model_are_refused(tmp_path: Path) -> None:
    write_adapters(tmp_path / "out", LORA, _tensors().items(), torch.float32)
    with pytest.raises(PenstockError, match="8 tensors, and the model 12 of adapters"):
        list(read_adapters(tmp_path / "out", replace(tiny(3), lora=LORA)))
    with pytest.raises(PenstockError, match="3 x 12, but the config makes it 3 x 16"):
        list(read_adapters(tmp_path / "out", replace(MODEL, hidden=16)))


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(PenstockError, match="is not a model that could be replaced"):
        write_adapters(tmp_path, LORA, _tensors().items(), torch.float32)


@pytest.mark.parametrize(
    "change",
    [
        {"peft_type": "IA3"},
        {"use_dora": True},
        {"use_rslora": True},
        {"modules_to_save": ["lm_head"]},
        {"target_modules": "all-linear"},
        {"target_modules": ["embed_tokens"]},
        {"bias": "all"},
        {"rank_pattern": {"q_proj": 4}},
        {"r": None},
    ],
)
def test_other_adapters_are_refused_by_name(change: dict[str, object]) -> None:
    with pytest.raises(PenstockError):
        from_peft(to_peft(LORA, "") | change)
