"""What a run leaves behind: evaluations, settings, TensorBoard files, and words on the console."""

import json
from functools import partial
from pathlib import Path

import pytest

from penstock.data import open_data
from penstock.run.observe.utilisation import document_lengths, model_flops
from penstock.train.config.load import load
from penstock.train.loop.setup import architecture
from train.runs.mistakes import PEAK, known_peak, slow_data
from train.runs.ranks import Ran, Setting, fresh

pytestmark = pytest.mark.torch

EVALUATED = ("data.held_out=0.2", "evaluation.every=2", "evaluation.batches=2", "run.steps=4")


@pytest.fixture(scope="module")
def evaluated(setting: Setting) -> Ran:
    ran = setting.run(*EVALUATED, "log.tensorboard=true", name=fresh("evaluated"))
    assert ran.codes == (0, 0), ran.said
    return ran


def test_evaluations_stand_in_the_records_of_their_steps(evaluated: Ran) -> None:
    found = {record["step"]: record.get("evaluation") for record in evaluated.metrics}
    assert [step for step, loss in found.items() if loss is not None] == [2, 4]
    assert found[4] < found[2]
    assert f"step 2: held-out loss {found[2]:.4f}" in evaluated.said[0]


def test_an_evaluation_changes_nothing_and_is_the_same_under_any_layout(
    setting: Setting, evaluated: Ran
) -> None:
    """Two replicas of one device each, whole sequences; the training behind it is the same."""
    layout = ("mesh.replicas=2", "pipeline.devices=1", "batch.microbatches=2")
    plain = ("pipeline.schedule=gpipe", "pipeline.slices=1")
    other = setting.run(*EVALUATED, *layout, *plain, name="evaluated-otherwise")
    assert other.codes == (0, 0), other.said
    for mine, theirs in zip(evaluated.metrics, other.metrics):
        assert mine == pytest.approx(theirs, rel=1e-9, abs=0)
    never = setting.run(EVALUATED[0], "run.steps=4", name="never-evaluated")
    assert never.losses == evaluated.losses


def test_tensorboard_files_hold_the_same_numbers(evaluated: Ran) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", exc_type=ImportError
    ).EventAccumulator
    events = accumulator(str(evaluated.folder / "tensorboard")).Reload()
    losses = [event.value for event in events.Scalars("loss")]
    assert losses == pytest.approx(evaluated.losses, rel=1e-6)
    assert [event.step for event in events.Scalars("evaluation")] == [2, 4]


def test_the_settings_of_a_run_lie_in_its_folder(setting: Setting, evaluated: Ran) -> None:
    given = [f"run.directory={evaluated.folder}", *EVALUATED, "log.tensorboard=true"]
    assert load(evaluated.folder / "config.toml") == load(setting.config, given)


def test_only_the_first_rank_speaks(evaluated: Ran) -> None:
    first, second = evaluated.said
    assert second == ""
    lines = first.splitlines()
    assert lines[0] == (
        "seq1f1b: 2 devices, 2 x 2 layers, slices of 18 + 14 tokens, 16,016 parameters"
    )
    assert [line.split()[1] for line in lines if line.startswith("step ")] == [
        *("1/4", "2/4", "2:", "3/4", "4/4", "4:")
    ]


def test_what_is_held_out_is_evaluated_once_whatever_is_asked_for(setting: Setting) -> None:
    """Global batches have 4 samples, and a single document is held out."""
    one = ("data.held_out=0.01", "evaluation.every=1", "run.steps=2")
    few, many = (
        setting.run(*one, f"evaluation.batches={count}", name=f"held-out-{count}")
        for count in (8, 1000)
    )
    assert few.codes == many.codes == (0, 0), many.said
    assert few.records == many.records
    assert "warning: evaluation.batches is 1000, which are 4,000 samples, but only" in many.said[0]


def test_stages_without_layers_are_told_once(setting: Setting) -> None:
    ran = setting.run("model.layers=1", "run.steps=2", name="few-layers")
    assert ran.codes == (0, 0), ran.said
    said = "".join(ran.said)
    assert said.count("warning: stage 1 of 2 has no layers: the model has 1") == 1


def test_time_beside_the_lanes_is_no_bubble(setting: Setting) -> None:
    """One device is never idle, however long it takes to read a batch."""
    alone = ("pipeline.devices=1", "run.steps=2")
    ran = setting.run(*alone, name="slow-data", ranks=1, prepare=partial(slow_data, 0.5))
    assert ran.codes == (0,), ran.said
    timing = [json.loads(line) for line in (ran.folder / "timing.jsonl").read_text().splitlines()]
    assert min(record["seconds"] for record in timing) > 0.5
    assert max(record["bubble"] for record in timing) < 0.5


def test_timing_is_kept_apart_from_what_must_repeat(evaluated: Ran) -> None:
    timing = (evaluated.folder / "timing.jsonl").read_text()
    assert timing.count("\n") == 4
    assert "tokens_per_second" in timing
    assert "seconds" not in evaluated.records.decode()


def test_more_steps_go_on_and_records_grow(setting: Setting) -> None:
    constant = "optimizer.schedule=constant"
    short = setting.run(constant, "run.steps=2", name="grows")
    longer = setting.run(constant, "run.steps=3", name="grows")
    done = setting.run(constant, "run.steps=3", name="grows")
    assert {*short.codes, *longer.codes, *done.codes} == {0}
    assert [record["step"] for record in done.metrics] == [1, 2, 3]
    assert "continues from step 3" in done.said[0]


def test_the_checkpoints_that_are_kept_are_the_newest(setting: Setting) -> None:
    kept = ("checkpoint.every=1", "checkpoint.keep=2", "run.steps=5")
    ran = setting.run(*kept, name="kept")
    assert ran.codes == (0, 0), ran.said
    names = sorted(path.name for path in (ran.folder / "checkpoints").iterdir())
    assert names == ["step-00000004", "step-00000005"]


def test_a_report_ends_a_run(setting: Setting) -> None:
    ran = setting.run("log.report=true", 'log.compare=["1f1b"]', "run.steps=2", name="reported")
    assert ran.codes == (0, 0), ran.said
    report = (ran.folder / "report.txt").read_text()
    assert report.strip() in ran.said[0]
    for words in ("seq1f1b", "1f1b", "measured", "predicted", str(ran.folder / "checkpoints")):
        assert words in report
    assert all(map(Path.is_file, (ran.folder / "timeline.html", ran.folder / "trace.json")))


def test_utilisation_counts_the_documents_of_all_replicas(setting: Setting, tmp_path: Path) -> None:
    """Documents of some 300 bytes in sequences of 512: attention across them is no work."""
    changes = ["batch.length=512", "batch.microbatches=2", "mesh.replicas=2", "run.steps=1"]
    plain = ["pipeline.devices=1", "pipeline.schedule=gpipe", "pipeline.slices=1"]
    ran = setting.run(
        *changes, *plain, "optimizer.warmup_steps=0", name="utilised", prepare=known_peak
    )
    assert set(ran.codes) == {0}, ran.said
    settings = load(setting.config, changes[:3])
    data = open_data(settings.data, 512, 256, settings.run.seed, tmp_path).train
    batch = [each for replica in range(2) for each in data.batch_at(0, replica, 2, 2, 1)]
    model = architecture(settings)
    (timing,) = map(json.loads, (ran.folder / "timing.jsonl").read_text().splitlines())
    flops = timing["utilisation"] * timing["seconds"] * PEAK
    assert flops == pytest.approx(model_flops(model, document_lengths(batch)))
    assert flops < 0.9 * model_flops(model, [512] * 4)
