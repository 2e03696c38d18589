"""A folder has one run at a time."""

import errno
from pathlib import Path

import pytest

from penstock.errors import RunError, ShapeError
from penstock.train.loop.run_lock import claim_export, claim_folder, claim_run
from train.samples import short


def test_a_second_run_in_a_folder_is_refused(tmp_path: Path) -> None:
    first, second = claim_folder(tmp_path / "run"), claim_folder(tmp_path / "run")
    with first, pytest.raises(RunError, match="another run is using"), second:
        pass


def test_a_folder_is_free_again_after_its_run(tmp_path: Path) -> None:
    for _ in range(2):
        with claim_folder(tmp_path):
            assert (tmp_path / ".running").exists()


def test_a_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with (
        pytest.raises(ShapeError, match=r"cannot lock '.*\.running': No locks available"),
        claim_folder(tmp_path),
    ):
        pass


def test_two_runs_do_not_export_into_one_folder(tmp_path: Path) -> None:
    """Each has a folder of its own; the second is refused at its start, not after its last step."""
    first, second = (
        short(f"run.directory={tmp_path / name}", f"checkpoint.export={tmp_path / export}")
        for name, export in (("one", "out"), ("two", "one/../out"))
    )
    with (
        claim_run(first),
        pytest.raises(RunError, match="another run exports into"),
        claim_run(second),
    ):
        pass
    with claim_run(second), claim_folder(tmp_path / "one"):
        pass


def test_a_lock_leaves_nothing_behind(tmp_path: Path) -> None:
    with claim_export(tmp_path / "out"):
        assert [path.name for path in tmp_path.iterdir()] == [".out.exporting"]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ShapeError, match="cannot make"), claim_folder(tmp_path / "file" / "run"):
        pass
