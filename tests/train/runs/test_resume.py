"""What is stored by one layout goes on under any other, on the same curve."""

import shutil
import time
from functools import partial
from pathlib import Path

import pytest

from loops import one_of
from penstock.run.process.environment import read_place
from penstock.train.checkpoint import find, folders
from train.runs.ranks import Ran, Setting

pytestmark = pytest.mark.torch

CLOSE = 1e-9
"""Relative error of a loss in float64 when only the order of additions has changed."""

LAYOUTS: dict[str, tuple[int, tuple[str, ...]]] = {
    "another schedule": (2, ("schedule=zb-h1", "slices=1")),
    "one process": (1, ("schedule=1f1b", "devices=1", "slices=1")),
    "more devices and slices": (4, ("devices=4", "slices=4", "cut=even")),
    "two stages on each device": (2, ("schedule=seq1f1b-i", "chunks=2")),
    "two replicas": (4, ("schedule=1f1b", "slices=1")),
    "attention apart": (2, ("schedule=helixpipe", "slices=1", "recompute=without-attention")),
    "attention with weights sent": (
        2,
        ("schedule=helixpipe", "slices=1", "options.send=weights", "recompute=without-attention"),
    ),
    "recomputed": (2, ("recompute=all", "slices=3", "cut=[16, 9, 7]")),
}
"""Ranks, and what is changed in the pipeline."""
REPLICAS = {"two replicas": ("mesh.replicas=2", "batch.microbatches=2")}
"""Layouts that share the batch."""


def halfway(setting: Setting, undisturbed: Ran, name: str) -> Path:
    """The folder of a run that stopped after four of its eight steps."""
    folder = setting.folder / name
    folder.mkdir()
    shutil.copytree(
        undisturbed.folder / "checkpoints" / "step-00000004",
        folder / "checkpoints" / "step-00000004",
    )
    shutil.copy(undisturbed.folder / "metrics.jsonl", folder)  # lines behind step 4 are taken back
    return folder


@pytest.mark.parametrize("layout", one_of(2, ((layout,) for layout in LAYOUTS)))
def test_a_run_goes_on_under_another_layout_on_the_same_curve(
    setting: Setting, undisturbed: Ran, layout: str
) -> None:
    ranks, changes = LAYOUTS[layout]
    name = layout.replace(" ", "-")
    halfway(setting, undisturbed, name)
    pipeline = [f"pipeline.{change}" for change in changes]
    ran = setting.run(*pipeline, *REPLICAS.get(layout, ()), name=name, ranks=ranks)
    assert set(ran.codes) == {0}, ran.said
    assert "continues from step 4, stored by seq1f1b on 2 devices\n" in ran.said[0]
    assert len(ran.losses) == 8
    assert ran.losses == pytest.approx(undisturbed.losses, rel=CLOSE, abs=0)
    norms = [[record["norm"] for record in each.metrics] for each in (ran, undisturbed)]
    assert norms[0] == pytest.approx(norms[1], rel=CLOSE, abs=0)
    assert ran.losses[:4] == undisturbed.losses[:4]


def test_a_run_begun_under_another_layout_goes_on_too(setting: Setting, undisturbed: Ran) -> None:
    """Stored by two replicas with two stages on each device, tied weights aside."""
    begun = ("mesh.replicas=2", "batch.microbatches=2", "pipeline.chunks=2")
    spread = (*begun, "pipeline.schedule=interleaved", "pipeline.slices=1")
    first = setting.run(*spread, "run.steps=4", "optimizer.schedule=constant", name="back", ranks=4)
    assert set(first.codes) == {0}, first.said
    second = setting.run("optimizer.schedule=constant", name="back")
    straight = setting.run("optimizer.schedule=constant", name="straight")
    assert second.codes == straight.codes == (0, 0), second.said
    assert second.losses == pytest.approx(straight.losses, rel=CLOSE, abs=0)


@pytest.mark.matrix
def test_a_run_goes_on_from_tensor_ranks_to_sequence_ranks_to_owners_of_the_optimizer(
    setting: Setting, undisturbed: Ran
) -> None:
    """Three layouts of four processes and one folder; the last is what all steps are held to."""
    devices, owners = ("pipeline.devices=2",), ("mesh.replicas=2", "batch.microbatches=2")
    spreads = (
        ("run.steps=3", "mesh.tensor=2"),
        ("run.steps=6", "mesh.sequence=2"),
        (*owners, "mesh.shard=optimizer"),
    )
    rates = ("optimizer.schedule_steps=8",)
    ran = [setting.run(*devices, *rates, *each, name="cells", ranks=4) for each in spreads]
    assert {code for each in ran for code in each.codes} == {0}, [each.said for each in ran]
    of_cells = "stored by seq1f1b on 2 devices of 2 ranks each\n"
    assert f"continues from step 3, {of_cells}" in ran[1].said[0]
    assert f"continues from step 6, {of_cells}" in ran[2].said[0]
    assert len(ran[2].losses) == 8
    assert ran[2].losses == pytest.approx(undisturbed.losses, rel=CLOSE, abs=0)


@pytest.mark.matrix
def test_tied_weights_go_on_from_one_process_to_four(setting: Setting) -> None:
    """One process has the embedding and its copy; four have them on two devices."""
    common = ("model.tied=true", "optimizer.schedule=constant")
    one = ("pipeline.devices=1", "pipeline.schedule=gpipe", "pipeline.slices=1")
    first = setting.run(*common, *one, "run.steps=4", name="tied", ranks=1)
    second = setting.run(*common, "pipeline.devices=4", name="tied", ranks=4)
    straight = setting.run(*common, name="tied-straight")
    assert {*first.codes, *second.codes, *straight.codes} == {0}, first.said + second.said
    assert second.losses == pytest.approx(straight.losses, rel=CLOSE, abs=0)


def test_replicas_with_clipping_learn_what_one_pipeline_learns(setting: Setting) -> None:
    common = ("optimizer.clip=0.05", "pipeline.schedule=1f1b", "pipeline.slices=1")
    two = setting.run(
        *common, "mesh.replicas=2", "batch.microbatches=2", name="clipped-twice", ranks=4
    )
    one = setting.run(*common, name="clipped-once")
    assert {*one.codes, *two.codes} == {0}, one.said + two.said
    picture = (
        "mesh        replica 2 x device 2\n"
        "  machine 0   replica 0   device 0: [0]   device 1: [1]\n"
        "              replica 1   device 0: [2]   device 1: [3]\n"
    )
    assert (picture in two.said[0], "mesh" in one.said[0]) == (True, False)
    assert min(record["norm"] for record in one.metrics) > 0.05  # every step was clipped
    assert two.losses == pytest.approx(one.losses, rel=CLOSE, abs=0)


def test_a_run_begins_with_the_checkpoint_of_another_and_then_goes_on_with_its_own(
    setting: Setting, undisturbed: Ran
) -> None:
    given = halfway(setting, undisturbed, "given")
    resume = f"checkpoint.resume={given / 'checkpoints'}"
    first = setting.run(resume, "run.steps=6", "checkpoint.every=2", name="branch")
    second = setting.run(resume, name="branch")
    assert {*first.codes, *second.codes} == {0}, first.said + second.said
    assert "continues from step 4" in first.said[0]
    assert "continues from step 6" in second.said[0]


def publish_late(given: Path, newer: Path) -> None:
    """Another run publishes a checkpoint when rank 0 has looked, and rank 1 has not yet."""
    looked = given / ".looked"

    def steps_seen(folder: Path) -> list[int]:
        if folder != given:
            return folders.steps(folder)
        if read_place().rank == 0:
            found = folders.steps(folder)
            looked.touch()
            return found
        while not looked.exists():
            time.sleep(0.02)
        shutil.copytree(newer, given / newer.name)
        return folders.steps(folder)

    find.steps = steps_seen


def test_all_ranks_go_on_from_one_checkpoint_while_another_run_publishes_the_next(
    setting: Setting, undisturbed: Ran
) -> None:
    given = halfway(setting, undisturbed, "published") / "checkpoints"
    newer = undisturbed.folder / "checkpoints" / "step-00000008"
    ran = setting.run(
        f"checkpoint.resume={given}",
        name="while-published",
        prepare=partial(publish_late, given, newer),
    )
    assert ran.codes == (0, 0), ran.said
    assert "continues from step 4" in ran.said[0]
    assert ran.losses == undisturbed.losses[4:]


def test_a_folder_without_checkpoints_is_refused(setting: Setting) -> None:
    ran = setting.run(f"checkpoint.resume={setting.folder / 'text'}", name="nothing-there")
    assert ran.codes == (1, 1)
    assert len(ran.causes) == 1
    assert "but no checkpoint is there" in ran.causes[0]


def test_a_finished_run_goes_on_to_more_steps_with_its_last_learning_rate(
    setting: Setting,
) -> None:
    alone = ("pipeline.devices=1", "pipeline.schedule=gpipe", "pipeline.slices=1")
    first = setting.run(*alone, "run.steps=4", name="longer", ranks=1)
    second = setting.run(*alone, "run.steps=6", name="longer", ranks=1)
    third = setting.run(*alone, "optimizer.schedule_steps=8", name="longer", ranks=1)
    assert {*first.codes, *second.codes, *third.codes} == {0}, first.said + second.said
    rates = [record["rate"] for record in third.metrics]
    assert rates[3] == pytest.approx(1e-3)
    assert rates[4:6] == [rates[3], rates[3]]
    assert rates[6] > 1.5 * rates[5]
    assert "the learning rate keeps its plan of 4 steps" in second.said[0]
    assert "the learning rate is planned again, over 8 steps instead of 4" in third.said[0]


def test_another_seed_is_refused_by_name(setting: Setting, undisturbed: Ran) -> None:
    saved = halfway(setting, undisturbed, "other-seed") / "config.toml"
    shutil.copy(undisturbed.folder / "config.toml", saved)
    ran = setting.run("run.seed=1", name="other-seed")
    assert saved.read_bytes() == (undisturbed.folder / "config.toml").read_bytes()
    assert len(ran.causes) == 1
    assert "the run was stored with data of seed 0, but now it is 1" in ran.causes[0]
    assert 2 in ran.codes
