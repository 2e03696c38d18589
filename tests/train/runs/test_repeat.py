"""Equal runs leave equal records; a damaged checkpoint costs steps, and never the run."""

import shutil
from pathlib import Path

import pytest

from train.runs.ranks import Ran, Setting

pytestmark = pytest.mark.torch


def test_two_runs_with_the_same_seed_write_the_same_bytes(
    setting: Setting, undisturbed: Ran
) -> None:
    again = setting.run(name="again")
    assert again.codes == (0, 0), again.said
    assert again.records == undisturbed.records
    assert len(again.metrics) == 8


def test_another_seed_is_another_run(setting: Setting, undisturbed: Ran) -> None:
    other = setting.run("run.seed=7", "run.steps=2", name="other")
    assert not {*other.losses} & {*undisturbed.losses}


def test_a_run_learns(undisturbed: Ran) -> None:
    assert undisturbed.losses[-1] < undisturbed.losses[0] - 0.5


def damage(folder: Path) -> None:
    """Turn one bit of the largest file."""
    file = max(folder.glob("*.distcp"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    setting: Setting, undisturbed: Ran
) -> None:
    folder = setting.folder / "damaged"
    shutil.copytree(undisturbed.folder, folder)
    damage(folder / "checkpoints" / "step-00000008")
    ran = setting.run(name="damaged")
    assert ran.codes == (0, 0), ran.said
    warnings = [line for line in ran.said[0].splitlines() if "warning" in line.lower()]
    assert len(warnings) == 1, ran.said[0]
    assert warnings[0].startswith("warning: step-00000008 is damaged: ")
    assert "continues from step 4" in ran.said[0]
    assert ran.said[1] == ""
    assert ran.records == undisturbed.records


def test_where_every_checkpoint_is_damaged_nothing_is_overwritten(
    setting: Setting, undisturbed: Ran
) -> None:
    folder = setting.folder / "ruined"
    shutil.copytree(undisturbed.folder, folder)
    for checkpoint in (folder / "checkpoints").iterdir():
        damage(checkpoint)
    ran = setting.run(name="ruined")
    assert ran.codes == (1, 1)
    assert len(ran.causes) == 1
    assert "is complete: step-00000008 is damaged" in ran.causes[0]
    assert ran.records == undisturbed.records
