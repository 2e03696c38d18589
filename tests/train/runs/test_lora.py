"""Training of adapters: a small run, its files and checkpoints, and what they make of a model."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from penstock.cli.main import main
from penstock.data import IGNORE, Microbatch, open_data
from penstock.model.io.huggingface import read_weights
from penstock.model.io.peft_files import read_adapters
from penstock.train.config.load import load
from penstock.train.loop.setup import architecture
from penstock.verify.oracle import document_logits, whole_decoder
from train.runs.ranks import Ran, Setting, fresh

pytestmark = pytest.mark.torch

TARGETS = "['q_proj', 'v_proj', 'down_proj', 'lm_head']"
LORA = ("lora.rank=4", "lora.alpha=8", f"lora.targets={TARGETS}")
HELD_OUT = ("data.held_out=0.2", "evaluation.every=8", "evaluation.batches=2")
CLOSE = 1e-9


@pytest.fixture(scope="module")
def base(setting: Setting) -> Path:
    """A model to begin with, two steps old."""
    folder = setting.folder / "lora-base"
    short = ("run.steps=2", "optimizer.warmup_steps=0", f"checkpoint.export={folder}")
    ran = setting.run(*short, name=fresh("lora-base"))
    assert ran.codes == (0, 0), ran.said
    return folder


@pytest.fixture(scope="module")
def tuned(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Setting, Ran]:
    """Eight steps of adapters on two devices."""
    setting = Setting(tmp_path_factory.mktemp("lora"), f'huggingface = "{base}"')
    out = f"checkpoint.export={setting.folder / 'adapters'}"
    ran = setting.run(*LORA, *HELD_OUT, "checkpoint.keep=9", out, name="tuned")
    assert ran.codes == (0, 0), ran.said
    return setting, ran


def test_a_run_says_what_it_trains_and_its_loss_falls(tuned: tuple[Setting, Ran]) -> None:
    setting, ran = tuned
    model = architecture(load(setting.config, LORA))
    trained = 4 * 4 * ((16 + 16) + (16 + 8) + (24 + 16)) + 4 * (16 + model.vocabulary)
    assert model.trained_parameters == trained
    assert f"of which {trained:,} ({trained / model.parameters:.2%}) are trained" in ran.said[0]
    assert ran.losses[-1] < ran.losses[0]
    assert f"exported the adapters of step 8 as float64 into {setting.folder}" in ran.said[0]


def test_a_run_goes_on_bit_for_bit(tuned: tuple[Setting, Ran]) -> None:
    """A checkpoint has adapters and their moments; what is frozen is read again."""
    setting, ran = tuned
    folder = setting.folder / "again"
    (folder / "checkpoints").mkdir(parents=True)
    step = Path("checkpoints") / "step-00000004"
    shutil.copytree(ran.folder / step, folder / step)
    shutil.copy(ran.folder / "metrics.jsonl", folder)
    again = setting.run(*LORA, *HELD_OUT, name="again")
    assert again.codes == (0, 0), again.said
    assert "continues from step 4" in again.said[0]
    assert again.records == ran.records


@pytest.mark.parametrize(
    ("ranks", "changes"),
    [
        (1, ("pipeline.devices=1", "pipeline.schedule=1f1b", "pipeline.slices=1")),
        (4, ("mesh.tensor=2", "mesh.shard=full", "pipeline.schedule=zb-h1", "pipeline.slices=1")),
    ],
    ids=["one process", "tensor ranks"],
)
def test_other_layouts_have_the_same_curve(
    tuned: tuple[Setting, Ran], ranks: int, changes: tuple[str, ...]
) -> None:
    setting, ran = tuned
    other = setting.run(*LORA, *HELD_OUT, *changes, name=fresh("layout"), ranks=ranks)
    assert set(other.codes) == {0}, other.said
    assert other.losses == pytest.approx(ran.losses, rel=CLOSE, abs=0)


def _merged(base: Path, adapters: dict[str, Tensor], scale: float) -> dict[str, Tensor]:
    found = {name: tensor.double() for name, tensor in read_weights(base, _names(base))}
    for name in found:
        stem = name.removesuffix(".weight")
        if f"{stem}.lora_A.weight" in adapters:
            up, down = (adapters[f"{stem}.lora_{x}.weight"].double() for x in "BA")
            found[name] = found[name] + scale * up @ down
    return found


def _names(folder: Path) -> list[str]:
    from penstock.model.io.safetensors_files import locate

    return [*locate(folder)]


def test_merged_weights_are_base_and_adapters_and_have_the_loss_of_the_run(
    tuned: tuple[Setting, Ran], base: Path, tmp_path: Path
) -> None:
    setting, ran = tuned
    model = architecture(load(setting.config, LORA))
    adapters = dict(read_adapters(setting.folder / "adapters", model))
    assert main(["export", str(ran.folder), "--merge", "--to", str(tmp_path / "merged")]) == 0
    merged = dict(read_weights(tmp_path / "merged", _names(base)))
    expected = _merged(base, adapters, 8 / 4)
    for name, tensor in merged.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-12, atol=1e-12)
    assert main(["export", str(ran.folder), "--to", str(tmp_path / "adapters")]) == 0
    again = dict(read_adapters(tmp_path / "adapters", model))
    assert all(again[name].equal(tensor) for name, tensor in adapters.items())
    plain = replace(model, lora=None)
    losses = [_losses(plain, merged, batch) for batch in _held_out(setting, tmp_path)]
    mean = torch.cat(losses).mean().item()
    assert mean == pytest.approx(ran.metrics[-1]["evaluation"], rel=1e-9)


def _held_out(setting: Setting, cache: Path) -> list[Microbatch]:
    settings = load(setting.config, HELD_OUT)
    sizes = (settings.batch.length, 256, settings.run.seed)
    data = open_data(settings.data, *sizes, cache).held_out or pytest.fail("nothing held out")
    batches = range(settings.evaluation.batches)
    counts = (settings.batch.microbatches, settings.batch.rows)
    return [each for start in batches for each in data.batch(start, 0, 1, *counts)]


def _losses(model: Any, weights: dict[str, Tensor], batch: Microbatch) -> Tensor:
    decoder, found = whole_decoder(model, batch.length), []
    for tokens, labels, starts in zip(batch.tokens, batch.labels, batch.documents):
        for begin, end in zip(starts, (*starts[1:], batch.length)):
            logits = document_logits(decoder, weights, tokens[begin:end])
            valid = labels[begin:end] != IGNORE
            wanted = labels[begin:end][valid]
            found.append(torch.nn.functional.cross_entropy(logits[valid], wanted, reduction="none"))
    return torch.cat(found)


def test_a_run_begins_with_adapters_of_a_folder(tuned: tuple[Setting, Ran]) -> None:
    """With a rate of next to nothing it exports what it was given."""
    setting, _ = tuned
    given, out = setting.folder / "adapters", setting.folder / "unchanged"
    still = ("optimizer.learning_rate=1e-30", "optimizer.warmup_steps=0", "run.steps=1")
    paths = (f"lora.start={given}", f"checkpoint.export={out}")
    ran = setting.run(*LORA, *still, *paths, name=fresh("start"))
    assert ran.codes == (0, 0), ran.said
    model = architecture(load(setting.config, LORA))
    first, second = (dict(read_adapters(folder, model)) for folder in (given, out))
    assert all(second[name].equal(tensor) for name, tensor in first.items())


def test_adapters_of_another_rank_are_refused_before_a_process_starts(
    tuned: tuple[Setting, Ran], capfd: pytest.CaptureFixture[str]
) -> None:
    setting, _ = tuned
    words = setting.words(*LORA, "lora.rank=2", f"lora.start={setting.folder / 'adapters'}")
    assert main(words) == 2
    assert "adapters of rank 4" in capfd.readouterr().err


def test_a_run_is_not_continued_with_another_alpha(
    tuned: tuple[Setting, Ran], capfd: pytest.CaptureFixture[str]
) -> None:
    """It changes no shape, but all that adapters compute."""
    setting, _ = tuned
    words = setting.words(*LORA, *HELD_OUT, "lora.alpha=9", name="tuned")
    assert main(words) == 2
    said = "lora is rank 4, alpha 9, on q_proj, v_proj, down_proj, lm_head, but was"
    assert said in capfd.readouterr().err


def test_peft_reads_what_a_run_exports(
    tuned: tuple[Setting, Ran], base: Path, tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    setting, ran = tuned
    plain = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64)
    model = peft.PeftModel.from_pretrained(plain, setting.folder / "adapters")
    losses = []
    for batch in _held_out(setting, tmp_path):
        for tokens, labels, starts in zip(batch.tokens, batch.labels, batch.documents):
            for begin, end in zip(starts, (*starts[1:], batch.length)):
                with torch.no_grad():
                    logits = model(tokens[None, begin:end]).logits[0]
                valid = labels[begin:end] != IGNORE
                wanted = labels[begin:end][valid]
                losses.append(
                    torch.nn.functional.cross_entropy(logits[valid], wanted, reduction="none")
                )
    mean = torch.cat(losses).mean().item()
    assert mean == pytest.approx(ran.metrics[-1]["evaluation"], rel=1e-6)


def test_weights_gradients_and_optimizer_take_what_was_predicted(
    setting: Setting,
) -> None:
    """Frozen weights are held once, in 32 bits here; all else belongs to adapters."""
    sizes = {"hidden": 128, "ffn": 320, "heads": 8, "kv_heads": 4, "head_size": 16}
    ran = setting.run(
        *(f"model.{name}={size}" for name, size in sizes.items()),
        *("run.steps=1", "run.dtype=float32", "batch.length=256", "optimizer.warmup_steps=0"),
        *("lora.rank=8", "log.report=true", "log.compare=[]"),
        name=fresh("lora-report"),
        flags=("--json",),
    )
    assert ran.codes == (0, 0), ran.said
    (found,) = json.loads(ran.said[0][ran.said[0].index("{") :])["schedules"]
    trained = 2 * 8 * sum((128 + 128, 2 * (128 + 64), 128 + 128, 3 * (128 + 320)))
    for predicted, measured in zip(found["predicted_classes"], found["measured_classes"]):
        for name in ("weights", "gradients", "optimizer"):
            assert predicted[name] == measured[name]
        assert predicted["gradients"] == 4 * trained
        assert predicted["optimizer"] == 12 * trained
