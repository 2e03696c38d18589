"""Files on a disk: recognised by content, guarded in size, written whole or not at all."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from clock import within
from files.strategies import small
from penstock import files
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import FormatError, ShapeError
from penstock.files import FORMATS


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("suffix", [".txt", ".json", ".csv", ".weird", ""])
def test_a_file_is_recognised_by_its_content(tmp_path: Path, format: str, suffix: str) -> None:
    path = tmp_path / f"file{suffix}"
    files.save_text(path, FORMATS[format].dumps(small()))
    assert files.load(path) == small()


@pytest.mark.parametrize("format", FORMATS)
def test_a_schedule_is_saved_in_the_format_of_the_ending(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"file{FORMATS[format].suffix}"
    files.save(small(), path)
    assert path.read_text() == FORMATS[format].dumps(small())


@pytest.mark.parametrize("name", ["file.png", "file", ".txt"])
def test_an_ending_of_no_format_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ShapeError, match="is that of no format") as refusal:
        files.save(small(), tmp_path / name)
    assert ".json (JSON)" in refusal.value.hint
    assert list(tmp_path.iterdir()) == []


def outcome(read: Callable[[], Schedule]) -> tuple[str, str]:
    """The digest of what was read, or the words of the refusal."""
    try:
        return "read", read().digest
    except FormatError as refusal:
        return "refused", str(refusal)


@pytest.mark.parametrize(
    ("content", "format"),
    [
        ("# mine\n{", "text"),
        ("\n\n  {", "json"),
        ("[1]", "json"),
        (",,0F0", "csv"),
        ("(0F0;0B0)OVERLAP_F_B", "csv"),
        ("0F0\n", "csv"),
    ],
)
def test_the_first_line_decides(tmp_path: Path, content: str, format: str) -> None:
    path = tmp_path / "file"
    path.write_text(f"\ufeff{content}")
    wanted = outcome(lambda: FORMATS[format].loads(content, ""))
    assert outcome(lambda: files.load(path)) == wanted


def test_the_suffix_decides_where_the_content_does_not(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("devices 4\n")
    with pytest.raises(FormatError, match="neither a key nor a lane"):
        files.load(path)
    with pytest.raises(FormatError, match="does not start a schedule") as refusal:
        files.loads("\n\ndevices 4\n")
    assert refusal.value.line == 3
    assert "text lanes, JSON, PyTorch's CSV" in refusal.value.hint


def test_a_file_without_a_name_lends_its_own(tmp_path: Path) -> None:
    path = tmp_path / "by hand.txt"
    path.write_text(FORMATS["text"].dumps(small("")))
    assert files.load(path).name == "by hand"
    path.write_text(FORMATS["text"].dumps(small("inside")))
    assert files.load(str(path)).name == "inside"


def test_other_encodings_are_refused_where_they_start(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"devices: 2\nname: caf\xe9\n")
    with pytest.raises(FormatError, match="byte 0xe9 is not UTF-8") as refusal:
        files.load(path)
    assert (refusal.value.line, refusal.value.column) == (2, 10)
    path.write_text("devices: 2", "utf-16")
    with pytest.raises(FormatError, match="not UTF-8"):
        files.load(path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text(" \n\n")
    with pytest.raises(FormatError):
        files.load(path)
    with pytest.raises(FormatError, match="the file is empty"):
        files.loads("")


@pytest.mark.parametrize("path", ["no such file", ".", "nul\0l", "x" * 5000])
def test_what_cannot_be_read_is_refused(path: str) -> None:
    with pytest.raises(ShapeError, match="cannot read") as refusal:
        files.load(path)
    assert refusal.value.hint


def test_a_file_that_is_too_large_is_not_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 40)
    path = tmp_path / "file"
    path.write_text("#" * 40)
    with pytest.raises(FormatError):
        files.load(path)
    path.write_text("#" * 41)
    with pytest.raises(ShapeError, match="larger than 40 bytes"):
        files.load(path)


def test_saving_replaces_the_whole_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.save_text(path, "a long first version\n")
    files.save_text(path, "second\n")
    assert path.read_text() == "second\n"
    assert os.listdir(tmp_path) == ["file"]


def test_a_failed_save_leaves_the_old_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    files.save_text(path, "old\n")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ShapeError, match="No space left on device"):
        files.save_text(path, "new\n")
    assert path.read_text() == "old\n"
    assert os.listdir(tmp_path) == ["file"]


def test_text_that_cannot_be_encoded_is_refused_before_the_file_is_touched(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(ShapeError, match="cannot write"):
        files.save_text(path, "\ud800")
    assert os.listdir(tmp_path) == []


def test_saving_keeps_permissions_and_follows_links(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    files.save_text(path, "old\n")
    path.chmod(0o640)
    link.symlink_to(path)
    files.save_text(link, "new\n")
    assert link.is_symlink()
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_is_readable_as_the_user_wishes(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.save_text(tmp_path / "file", "new\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    files.save_text(path, "through\n")
    assert os.read(reader, 100) == b"through\n"
    os.close(reader)
    assert path.is_fifo()


@pytest.mark.parametrize("path", [".", "no/such/folder/file", "nul\0l", "x" * 5000])
def test_what_cannot_be_written_is_refused(path: str) -> None:
    with pytest.raises(ShapeError, match="cannot write") as refusal:
        files.save_text(path, "text\n")
    assert refusal.value.hint


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(ShapeError, match="cannot write"):
        files.save_text(tmp_path / "a", "text\n")
    with pytest.raises(ShapeError, match="cannot read"):
        files.load(tmp_path / "a")


@pytest.mark.long
@pytest.mark.parametrize("format", FORMATS)
def test_thirty_thousand_ops_are_written_and_read_in_a_second(format: str) -> None:
    lanes = [[Op(kind, s, i) for i in range(938) for kind in "FB"] for s in range(16)]
    schedule = Schedule.of("large", Shape(16, 16, (1,) * 938), lanes)
    with within(1):
        again = FORMATS[format].loads(FORMATS[format].dumps(schedule), "")
    assert again == schedule
    assert len(again.table) == 30_016
