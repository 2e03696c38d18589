"""Paths, folders and patterns become files, each once, in one order."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import outcome, usual
from penstock.data.paths import find_files, refuse_shared
from penstock.errors import ShapeError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt", "deep/c.txt", "deep/.hidden", ".git/config", "odd[1].txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    return tmp_path


def names(folder: Path, *paths: str) -> list[str]:
    found = find_files([str(folder / path) for path in paths], lambda path: True, "text files")
    return [path.relative_to(folder).as_posix() for path in found]


def test_a_folder_is_all_its_files_but_the_hidden_ones(folder: Path) -> None:
    assert names(folder, ".") == ["a.txt", "b.txt", "deep/c.txt", "odd[1].txt"]


def test_a_pattern_is_what_it_matches_in_order(folder: Path) -> None:
    assert names(folder, "[ab].txt") == ["a.txt", "b.txt"]
    assert names(folder, "**/*.txt") == ["a.txt", "b.txt", "deep/c.txt", "odd[1].txt"]


def test_a_name_that_exists_is_no_pattern(folder: Path) -> None:
    assert names(folder, "odd[1].txt") == ["odd[1].txt"]


def test_entries_keep_their_order_and_a_file_comes_once(folder: Path) -> None:
    assert names(folder, "deep", "b.txt", "*.txt") == ["deep/c.txt", "b.txt", "a.txt", "odd[1].txt"]


def test_in_a_folder_only_wanted_files_are_taken(folder: Path) -> None:
    found = find_files([str(folder)], lambda path: path.name == "b.txt", "b files")
    assert found == (folder / "b.txt",)


@pytest.mark.parametrize("path", ["nothing.txt", "*.md", "", "a\0b", "a\0*"])
def test_a_path_without_a_file_is_refused(folder: Path, path: str) -> None:
    wanted = os.path.join(folder, path) if path else path
    with pytest.raises(ShapeError) as refusal:
        find_files([str(folder / "a.txt"), wanted], lambda path: True, "text files")
    assert refusal.value.message == f"no file matches {wanted!r}"
    assert os.getcwd() in refusal.value.hint


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ShapeError, match="no file matches"):
            find_files([str(path)], lambda path: True, "text files")


@usual
@given(path=st.text(max_size=20))
def test_no_path_breaks_anything(path: str) -> None:
    found = outcome(lambda: find_files([f"absent-{path}"], lambda path: True, "text files"))
    assert isinstance(found, ShapeError)
    assert found.hint


def test_a_file_that_is_both_trained_on_and_held_out_is_refused(folder: Path) -> None:
    (folder / "link.txt").symlink_to(folder / "a.txt")
    with pytest.raises(ShapeError, match=r"link\.txt' is both trained on and held out"):
        refuse_shared([folder / "a.txt"], [folder / "b.txt", folder / "link.txt"])
    refuse_shared([folder / "a.txt"], [folder / "b.txt"])
