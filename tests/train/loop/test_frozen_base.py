"""Adapters go on beside the weights that they were trained beside, and beside no others."""

from pathlib import Path

import pytest

from penstock.errors import RunError
from penstock.train.config.load import loads
from penstock.train.config.settings import Settings
from penstock.train.loop.frozen_base import frozen_state, refuse_other_base


def _settings(folder: Path, rank: int = 4) -> Settings:
    text = f"""
[model]
huggingface = "{folder}"
[lora]
rank = {rank}
[pipeline]
schedule = "1f1b"
"""
    return loads(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.safetensors").write_bytes(bytes(range(256)) * 20)
    return tmp_path


def test_the_same_files_are_the_same_weights(folder: Path) -> None:
    settings = _settings(folder)
    refuse_other_base(settings, frozen_state(settings))


@pytest.mark.parametrize("content", [bytes(5120), bytes(range(256)) * 21], ids=["values", "size"])
def test_other_files_are_refused(folder: Path, content: bytes) -> None:
    settings = _settings(folder)
    state = frozen_state(settings)
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(RunError, match="adapters of other weights than"):
        refuse_other_base(settings, state)


def test_adapters_and_whole_models_do_not_continue_each_other(folder: Path) -> None:
    with pytest.raises(RunError, match="all weights, and no adapters"):
        refuse_other_base(_settings(folder), {})
    with pytest.raises(RunError, match="adapters, and no other weights"):
        refuse_other_base(_settings(folder, 0), frozen_state(_settings(folder)))


def test_a_run_without_adapters_says_nothing_of_them(folder: Path) -> None:
    assert frozen_state(_settings(folder, 0)) == {}
    refuse_other_base(_settings(folder, 0), {})


def test_initial_weights_are_known_by_their_seed() -> None:
    lines = ["[lora]", "rank = 4", "[pipeline]", 'schedule = "1f1b"']
    first, second = (loads("\n".join(["[run]", f"seed = {seed}", *lines])) for seed in (1, 2))
    with pytest.raises(RunError, match=r"than run\.seed 2 gives now"):
        refuse_other_base(second, frozen_state(first))
