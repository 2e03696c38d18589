"""Weights go out to Hugging Face's folders, and come in from there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from penstock.cli.main import main
from penstock.data import IGNORE, Microbatch, open_data
from penstock.model.io.huggingface import write
from penstock.train.config.load import load
from penstock.train.loop.setup import architecture
from train.runs.kills import weights
from train.runs.ranks import Ran, Setting, fresh

pytestmark = pytest.mark.torch

HELD_OUT = ("data.held_out=0.2", "evaluation.every=3", "evaluation.batches=2")
STEPS = "run.steps=3"


@pytest.fixture(scope="module")
def export(setting: Setting) -> Path:
    return setting.folder / "exported-weights"


@pytest.fixture(scope="module")
def exported(setting: Setting, export: Path) -> Ran:
    ran = setting.run(*HELD_OUT, STEPS, f"checkpoint.export={export}", name=fresh("exported"))
    assert ran.codes == (0, 0), ran.said
    return ran


def held_out(setting: Setting, cache: Path) -> Iterator[Microbatch]:
    """What the run has evaluated."""
    settings = load(setting.config, HELD_OUT)
    sizes = (settings.batch.length, 256, settings.run.seed)
    data = open_data(settings.data, *sizes, cache).held_out or pytest.fail("nothing held out")
    for start in range(settings.evaluation.batches):
        yield from data.batch(start, 0, 1, settings.batch.microbatches, settings.batch.rows)


def losses(model: Any, batch: Microbatch) -> Iterator[Tensor]:
    """The loss of every label, each document for itself."""
    for tokens, labels, starts in zip(batch.tokens, batch.labels, batch.documents):
        for begin, end in zip(starts, (*starts[1:], batch.length)):
            with torch.no_grad():
                logits = model(tokens[None, begin:end]).logits[0]
            valid = labels[begin:end] != IGNORE
            yield cross_entropy(logits[valid], labels[begin:end][valid], reduction="none")


def test_an_export_is_read_by_transformers_and_has_the_loss_of_the_run(
    setting: Setting, exported: Ran, export: Path, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(export, dtype=torch.float64)
    each = [loss for batch in held_out(setting, tmp_path) for loss in losses(model, batch)]
    assert torch.cat(each).mean().item() == pytest.approx(exported.metrics[-1]["evaluation"], 1e-6)


FAMILY_PARTS = {
    "phi3": ("model.fused_files=true", "model.window=9"),
    "gemma3_text": (
        *("model.norms=both", "model.norm_adds_one=true", "model.scaled_embedding=true"),
        *("model.activation=gelu_tanh", "model.qk_norm=true", "model.logit_cap=5.0"),
        *("model.window=9", "model.window_pattern=[true, false]", "model.local_rope_theta=500.0"),
        "model.tied=true",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILY_PARTS)
def test_a_model_of_another_family_is_trained_and_read_by_transformers(
    setting: Setting, family: str, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    parts, export = FAMILY_PARTS[family], tmp_path / "model"
    out = f"checkpoint.export={export}"
    ran = setting.run(*HELD_OUT, STEPS, *parts, out, name=fresh(family))
    assert ran.codes == (0, 0), ran.said
    assert json.loads((export / "config.json").read_text())["model_type"] == family
    model = transformers.AutoModelForCausalLM.from_pretrained(
        export, dtype=torch.float32, attn_implementation="eager"
    )
    found = [each for batch in held_out(setting, tmp_path) for each in losses(model, batch)]
    told = ran.metrics[-1]["evaluation"]
    assert torch.cat(found).mean().item() == pytest.approx(told, rel=1e-5)


@pytest.mark.parametrize(
    "layout",
    [("pipeline.devices=4",), ("pipeline.devices=2", "mesh.replicas=2")],
    ids=["four devices", "two replicas"],
)
def test_a_run_begins_with_the_weights_of_a_folder_under_any_layout(
    exported: Ran, export: Path, tmp_path: Path, layout: tuple[str, ...]
) -> None:
    """With a rate of next to nothing it evaluates what it was given, and exports it again."""
    setting = Setting(tmp_path, f'huggingface = "{export}"')
    again = tmp_path / "again"
    tiny = (
        "optimizer.learning_rate=1e-30",
        "run.steps=1",
        "optimizer.warmup_steps=0",
        *HELD_OUT[:2],
    )
    here = ("evaluation.every=1", HELD_OUT[2], f"checkpoint.export={again}")
    batch = ["batch.microbatches=2"] if len(layout) > 1 else []
    ran = setting.run(*tiny, *here, *layout, *batch, name="given", ranks=4)
    assert set(ran.codes) == {0}, ran.said
    assert f"begins with the weights in {export}" in ran.said[0]
    theirs, mine = exported.metrics[-1]["evaluation"], ran.metrics[-1]["evaluation"]
    assert mine == pytest.approx(theirs, rel=1e-9, abs=0)
    first, second = weights(setting, export), weights(setting, again)
    assert all(tensor.equal(second[name]) for name, tensor in first.items())


def test_a_run_keeps_what_it_does_not_know_and_the_type_of_what_it_began_with(
    exported: Ran, export: Path, tmp_path: Path
) -> None:
    """Weights in bfloat16 with token ids and a tokenizer are trained in float32."""
    source, out = tmp_path / "source", tmp_path / "out"
    stated = json.loads((export / "config.json").read_text())
    stated |= {"torch_dtype": "bfloat16", "eos_token_id": [2, 7]}
    given = Setting(tmp_path)
    write(source, architecture(load(given.config)), weights(given, export), torch.bfloat16)
    (source / "config.json").write_text(json.dumps(stated))
    (source / "generation_config.json").write_text("{}")
    (tmp_path / "continued").mkdir()
    setting = Setting(tmp_path / "continued", f'huggingface = "{source}"')
    alone = ("pipeline.devices=1", "pipeline.schedule=gpipe", "pipeline.slices=1")
    there = (f"checkpoint.export={out}", "run.dtype=float32", "run.steps=2")
    ran = setting.run(*alone, *there, name="kept", ranks=1)
    assert set(ran.codes) == {0}, ran.said
    assert f"exported the weights of step 2 as bfloat16 into {out}" in ran.said[0]
    for name in ("config.json", "generation_config.json"):
        assert json.loads((out / name).read_text()) == json.loads((source / name).read_text())
    tensors = weights(given, out)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    later = tmp_path / "later"
    assert main(["export", str(ran.folder), "--to", str(later)]) == 0
    again = weights(given, later)
    assert all(tensor.equal(again[name]) for name, tensor in tensors.items())
    assert (later / "generation_config.json").exists()


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    setting = Setting(tmp_path, f'huggingface = "{tmp_path}/none"')
    ran = setting.run(name="none-there")
    assert 2 in ran.codes
    assert min(ran.codes) > 0, "a rank waited for the one that refused until it was killed"
    assert len(ran.causes) == 1, ran.said
    assert "config.json" in ran.causes[0]
