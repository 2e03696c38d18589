"""A file that is replaced is the old one or the new one, whatever happens on the way."""

import os
from pathlib import Path

import pytest

from files.faulty_disk import Fault, FaultyDisk, Killed, full, kill, power_cut
from penstock.files.durable import reason, replacement, sync_path, write_file

OPERATIONS = ["create", "write", "sync", "rename", "sync folder"]


def replace(target: Path, disk: FaultyDisk) -> None:
    with replacement(target, disk=disk) as file:
        file.write(b"the new content")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    write_file(path, b"the old content")
    return path


def test_content_is_synced_before_it_has_its_name_and_the_name_after(target: Path) -> None:
    disk = FaultyDisk()
    replace(target, disk)
    assert disk.done == OPERATIONS
    assert not disk.content
    assert not disk.names
    assert target.read_bytes() == b"the new content"


@pytest.mark.parametrize("fault", [full, kill, power_cut])
@pytest.mark.parametrize("at", range(len(OPERATIONS)), ids=OPERATIONS)
def test_a_fault_at_any_operation_leaves_a_whole_file(target: Path, at: int, fault: Fault) -> None:
    with pytest.raises((OSError, Killed)):
        replace(target, FaultyDisk(at, fault))
    whole = b"the new content" if target.read_bytes().startswith(b"the new") else b"the old content"
    assert target.read_bytes() == whole
    if fault is full:
        assert os.listdir(target.parent) == ["file"]


def test_power_that_is_lost_before_the_end_brings_back_the_old_file(target: Path) -> None:
    for at in range(len(OPERATIONS)):
        with pytest.raises(Killed):
            replace(target, FaultyDisk(at, power_cut))
        assert target.read_bytes() == b"the old content"


def test_an_error_of_the_writer_keeps_the_old_file_and_passes_through(target: Path) -> None:
    with pytest.raises(TypeError), replacement(target) as file:
        file.write(b"half of " + "the content")  # type: ignore[operator]
    assert target.read_bytes() == b"the old content"
    assert os.listdir(target.parent) == ["file"]


def test_what_a_killed_process_left_under_the_name_beside_is_deleted(target: Path) -> None:
    beside = target.with_name("left")
    beside.write_bytes(b"half of something")
    write_file(target, b"x", beside)
    assert target.read_bytes() == b"x"
    assert os.listdir(target.parent) == ["file"]


def test_a_name_beside_that_is_a_folder_is_refused(target: Path) -> None:
    target.with_name("left").mkdir()
    with pytest.raises(OSError, match="left"):
        write_file(target, b"x", target.with_name("left"))
    assert target.read_bytes() == b"the old content"


def test_a_path_that_does_not_exist_cannot_be_synced(tmp_path: Path) -> None:
    sync_path(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_path(tmp_path / "gone")


def test_a_reason_names_the_file_where_one_is_known() -> None:
    assert reason(OSError(28, "No space left on device")) == "No space left on device"
    assert reason(OSError(2, "No such file", "gone")) == "No such file (gone)"
    assert reason(ValueError()) == "ValueError"
