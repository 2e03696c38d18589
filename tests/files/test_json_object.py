"""JSON of others is plain values or a refusal with what to do."""

import os
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.files.json_object import read_object


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    return path


def test_an_object_is_read(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"a": [1, 1e-5, "\\ud83d\\ude00"]}'
    assert read_object(written(tmp_path, content), "") == {"a": [1, 1e-5, "\U0001f600"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b'{"a": 1,}', "line 1, column 9: .* is not JSON"),
        (b"[1]", "holds no JSON object"),
        (b'{"a": ' + b"1" * 5000 + b"}", "has a number of 5,000 characters"),
        (b'{"a": 12345678901234567890}', "has a number of 20 characters"),
        (b'{"a": "\\ud800"}', "contains an invalid character"),
        (b'{"\\udfff": 1}', "contains an invalid character"),
        (b'{"a": "\xff"}', "contains an invalid character"),
        (b'{"a": ' + b"[" * 100_000, "is nested too deeply"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(PenstockError, match=message) as caught:
        read_object(written(tmp_path, content), "name a folder")
    assert caught.value.exit_code == 2
    assert caught.value.hint


def test_a_file_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="cannot read '/dev/zero': it is not a regular file"):
        read_object(Path("/dev/zero"), "name a folder")
    (tmp_path / "long").touch()
    os.truncate(tmp_path / "long", 1 << 40)
    with pytest.raises(PenstockError, match="long': it is larger than 268,435,456 bytes"):
        read_object(tmp_path / "long", "name a folder")


@pytest.mark.parametrize("name", ["nothing", "x" * 300, "a\0b"])
def test_a_file_that_is_not_there_is_refused_with_the_hint(name: str) -> None:
    with pytest.raises(PenstockError, match="cannot read") as caught:
        read_object(Path(name), "name a folder")
    assert caught.value.hint == "name a folder"
