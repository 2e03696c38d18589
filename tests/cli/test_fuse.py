"""`penstock fuse` and `penstock unfuse`: a folder is measured, fused, refused and taken apart."""

from pathlib import Path

import pytest
import torch

from cli.conftest import Penstock
from penstock.arch.config import ModelConfig
from penstock.arch.parameters import expected_shapes
from penstock.model.io.huggingface import read_config, read_weights, write
from penstock.verify.material import parameters_of

pytestmark = pytest.mark.torch

MODEL = ModelConfig(5, 16, 24, 2, 1, 8, 256, element_bytes=4)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model with random weights, and a text to measure with."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(tmp_path / "model", MODEL, parameters_of(MODEL, torch.float32), torch.float32)
    (tmp_path / "data.txt").write_text("words of a text, again and again. " * 40)
    return tmp_path


def line(folder: Path, more: str) -> str:
    return f"fuse {folder}/model --data {folder}/data.txt --length 64 --sequences 2 {more}"


def test_a_plan_is_proposed_shown_and_written(penstock: Penstock, folder: Path) -> None:
    asked = line(folder, f"--attentions 1 --limit 2 --to {folder}/fused --svg {folder}/map.svg")
    answer = penstock(asked)
    assert answer.code == 0
    assert "measured with 2 sequences of 64 tokens, seed 0" in answer.err
    assert "left out   0  1  2  3  4" in answer.out
    assert "--plan 'remove=" in answer.out
    assert "and runs fused" in answer.out
    assert (folder / "map.svg").read_text().startswith("<svg")
    fused = read_config(folder / "fused")
    assert len(fused.attending(range(fused.layers))) == 1
    assert any(block.fused for block in fused.blocks)


def test_what_is_printed_can_be_given_as_a_plan(penstock: Penstock, folder: Path) -> None:
    proposed = penstock(line(folder, "--attentions 2 --limit 2 --json")).data
    again = penstock(line(folder, "--json --plan " + proposed["plan"].replace(" ", ";")))
    assert again.code == 0
    assert again.data["plan"] == proposed["plan"]
    assert again.data["losses"] == proposed["losses"]
    assert again.data["matrix"] == proposed["matrix"]
    losses = proposed["losses"]
    assert losses["removed"] != losses["given"]
    assert len(proposed["remove"]) == 3


def test_a_plan_without_runs_says_why_and_has_no_losses_of_runs(
    penstock: Penstock, folder: Path
) -> None:
    """One attention of five goes, so that no three layers in a row are without one."""
    answer = penstock(line(folder, "--attentions 4"))
    assert answer.code == 0
    assert "no MLPs are fused: that takes three layers without attention" in answer.err
    assert "attentions removed" in answer.out
    assert "runs fused" not in answer.out
    fused = penstock(line(folder, "--plan remove=1-3;fuse=1-2"))
    asked = penstock(line(folder, "--plan remove=1-3"))
    assert "no MLPs are fused" not in fused.err + asked.err
    assert "and each run in reverse order" in fused.out
    nothing = penstock(line(folder, ""))
    assert "as it is" in nothing.out
    assert "attentions removed" not in nothing.out


def test_a_folder_comes_back(penstock: Penstock, folder: Path) -> None:
    plan = "remove=1-3;fuse=1-2;norm=own"
    assert penstock(line(folder, f"--plan {plan} --to {folder}/fused")).code == 0
    answer = penstock(f"unfuse {folder}/fused --to {folder}/again")
    assert (answer.code, answer.out) == (0, f"{folder}/again\n")
    names = [*expected_shapes(read_config(folder / "again"))]
    found, given = (dict(read_weights(folder / each, names)) for each in ("again", "model"))
    assert all(found[name].equal(given[name]) for name in names)


REFUSED = {
    "--plan fuse=1-2": "layer 1 has attention",
    "--plan remove=9": "speaks of layer 9, but the model has 5 layers",
    "--plan keep=1": "the plan has 'keep=1'",
    "--norm first": "norm='first'",
    "--to {folder}/fused": "the plan fuses nothing and removes nothing",
    "--limit -1": "limit",
}


@pytest.mark.parametrize("more", REFUSED)
def test_what_cannot_be_fused_is_refused(penstock: Penstock, folder: Path, more: str) -> None:
    answer = penstock(line(folder, more.format(folder=folder)))
    assert answer.code == 2
    assert REFUSED[more] in answer.err
    assert "hint:" in answer.err
    assert not (folder / "fused").exists()


def test_what_is_not_fused_or_no_model_is_refused(penstock: Penstock, folder: Path) -> None:
    answer = penstock(f"unfuse {folder}/model --to {folder}/again")
    assert (answer.code, answer.out) == (2, "")
    assert "no layer of the model, which has 5, is fused" in answer.err
    nowhere = penstock(f"fuse {folder}/nowhere")
    assert nowhere.code == 2
    assert "hint:" in nowhere.err
