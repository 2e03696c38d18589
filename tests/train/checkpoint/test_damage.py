"""Checkpoints that were whole when they were written, and are not any more."""

import hashlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import RunError
from penstock.train.checkpoint import Checkpoints, load_part, manifest, newest_in
from penstock.train.checkpoint.folders import checkpoint_path
from train.checkpoint.faults import empty_like, same, tensors

pytestmark = pytest.mark.torch

FILES = [".metadata", "__0_0.distcp", "manifest.json", "state.json"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoints of steps 1 and 2."""
    checkpoints = Checkpoints(tmp_path_factory.mktemp("made"))
    for step in (1, 2):
        checkpoints.save(step, tensors(step), {"seed": 7})
    checkpoints.wait()
    return checkpoints.folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def cut(path: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def grow(path: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def blank(path: Path, chance: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def delete(path: Path, chance: random.Random) -> None:
    path.unlink()


def assert_older_is_used(folder: Path, name: str) -> None:
    with pytest.warns(UserWarning, match="step-00000002 is damaged") as caught:
        found = newest_in(folder)
    assert name in str(caught[0].message)
    assert "Using step-00000001 instead" in str(caught[0].message)
    assert found is not None
    assert found.step == 1
    assert len(found.damaged) == 1


def test_the_files_that_are_damaged_below_are_all_there_are(made: Path) -> None:
    assert sorted(path.name for path in checkpoint_path(made, 2).iterdir()) == FILES


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", [cut, grow, blank, delete])
def test_a_file_that_is_cut_grown_blanked_or_deleted_is_noticed(
    folder: Path, name: str, harm: Callable[[Path, random.Random], None]
) -> None:
    harm(checkpoint_path(folder, 2) / name, random.Random(name))
    assert_older_is_used(folder, name)


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_every_one_of_250_flipped_bits_is_noticed(folder: Path, name: str) -> None:
    chance = random.Random(f"bits of {name}")
    path = checkpoint_path(folder, 2) / name
    whole = path.read_bytes()
    blamed = "" if name == "manifest.json" else name  # a wrong hash in there accuses a good file
    for _ in range(250):
        flip(path, chance)
        assert_older_is_used(folder, blamed)
        path.write_bytes(whole)
    assert (newest_in(folder) or pytest.fail("none")).step == 2


@pytest.mark.parametrize("left_out", [[".metadata"], ["state.json"], ["__0_0.distcp"]])
def test_a_manifest_that_leaves_files_out_vouches_for_nothing(
    folder: Path, left_out: list[str]
) -> None:
    """As if somebody had made a list of what a copy has, in the right spelling."""
    path = checkpoint_path(folder, 2)
    files = manifest.read_manifest(path, 2)
    kept = {name: entry for name, entry in files.items() if name not in left_out}
    (path / manifest.FILE).write_bytes(manifest.spell(2, kept))
    assert_older_is_used(folder, f"manifest.json does not list {left_out[0]}")
    (path / left_out[0]).unlink()
    assert_older_is_used(folder, left_out[0])


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_in_the_place_of_a_file_is_noticed_and_not_waited_for(
    folder: Path, name: str
) -> None:
    path = checkpoint_path(folder, 2) / name
    path.unlink()
    os.mkfifo(path)
    assert_older_is_used(folder, name)


def test_an_empty_file_that_became_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    nothing = {"pipe": manifest.FileEntry(0, hashlib.sha256().hexdigest())}
    assert manifest.damage(tmp_path, nothing) == ["pipe: it is not a regular file"]


def test_what_is_used_instead_of_a_damaged_one_loads(folder: Path) -> None:
    flip(checkpoint_path(folder, 2) / "__0_0.distcp", random.Random(1))
    with pytest.warns(UserWarning, match="damaged"):
        found = newest_in(folder)
    assert found is not None
    loaded = empty_like(tensors(1))
    load_part(found, loaded)
    assert same(loaded, tensors(1))


def test_when_none_is_whole_the_run_is_refused_and_does_not_start_anew(folder: Path) -> None:
    for step in (1, 2):
        cut(checkpoint_path(folder, step) / "__0_0.distcp", random.Random(step))
    with pytest.raises(RunError, match=r"no checkpoint in .* is complete.*step-00000002.*00000001"):
        newest_in(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[" * 100_000,
        b'{"files": {"../../secret": {"size": 1, "sha256": ""}}}',
        b'{"files": {"a": {"size": "1", "sha256": 3}}}',
        b'{"files": []}',
        b"\xff\xfe",
    ],
)
def test_a_manifest_that_is_something_else_is_damage_and_not_a_crash(
    folder: Path, content: bytes
) -> None:
    (checkpoint_path(folder, 2) / "manifest.json").write_bytes(content)
    assert_older_is_used(folder, "manifest.json")


def test_a_checkpoint_under_the_name_of_another_step_is_damage(folder: Path) -> None:
    checkpoint_path(folder, 2).rename(checkpoint_path(folder, 9))
    with pytest.warns(UserWarning, match=r"step-00000009 is damaged: manifest.json was changed"):
        assert (newest_in(folder) or pytest.fail("none")).step == 1


def test_folders_and_files_that_are_no_checkpoints_are_left_alone(folder: Path) -> None:
    (folder / "step-12").mkdir()
    (folder / "step-000000077").mkdir()
    (folder / "step-00000099").write_text("a file")
    (folder / "notes").mkdir()
    checkpoints = Checkpoints(folder)
    assert (checkpoints.newest() or pytest.fail("none")).step == 2
    assert (folder / "notes").is_dir()


def test_a_folder_that_is_not_there_has_no_checkpoint(tmp_path: Path) -> None:
    assert newest_in(tmp_path / "nowhere") is None
    assert Checkpoints(tmp_path / "new" / "run").newest() is None
