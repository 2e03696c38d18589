from pathlib import Path

import pytest

from cli.conftest import Penstock
from penstock.train.config.save import save
from train.samples import short

pytestmark = pytest.mark.torch


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was started and has saved nothing."""
    save(short(f"run.directory={tmp_path / 'run'}"))
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("export nowhere", 2, "'nowhere' is not the folder of a run: it has no config.toml"),
        ("export {run}", 1, "has no checkpoint"),
        ("export {run} --step 4", 1, "step-00000004 cannot be used: manifest.json is missing"),
        ("export {run} --dtype int8", 2, "checkpoint.export_dtype is 'int8'"),
        ("export", 2, "RUN"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    line: str, code: int, words: str, run: Path, penstock: Penstock
) -> None:
    answer = penstock(line.format(run=run))
    assert (answer.code, answer.out) == (code, "")
    assert words in answer.err
    assert not (run / "export").exists()
