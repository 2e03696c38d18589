"""What lies in a folder is read where it is a file, and never waited for."""

import os
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.files.regular import open_regular, read_regular
from penstock.train.loop.setup import layout_of
from train.samples import short


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "file") == read_regular(tmp_path / "link") == b"content"


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_anything_else_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    path = {"device": Path("/dev/zero"), "folder": tmp_path}.get(kind, tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is not a regular file"):
        open_regular(path)


def test_a_model_whose_config_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    settings = short(f"model.huggingface={tmp_path}")
    with pytest.raises(PenstockError, match="it is not a regular file"):
        layout_of(settings, 1)
