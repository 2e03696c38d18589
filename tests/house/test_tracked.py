"""The repository holds no file that it ignores."""

import subprocess
from pathlib import Path

import pytest

from house.conftest import Plant
from house.source import none_of
from house.tracked import ignored, is_repository

pytestmark = pytest.mark.processes  # git


def test_no_tracked_file_is_ignored(house: Path) -> None:
    if not is_repository(house):
        pytest.skip("the project is not in a git repository, or there is no git")
    none_of(ignored(house))


def test_an_output_that_was_added_by_force_is_named(plant: Plant) -> None:
    root = plant({".gitignore": "/runs/\n", "runs/first/log.txt": "", "kept.txt": ""})
    try:
        subprocess.run(["git", "init", "-q", root], check=True)
    except OSError:
        pytest.skip("there is no git")
    subprocess.run(["git", "-C", root, "add", "--force", "."], check=True)
    assert is_repository(root)
    assert ignored(root) == [
        "runs/first/log.txt is tracked, but .gitignore names it: git rm --cached runs/first/log.txt"
    ]


def test_a_plain_folder_is_no_repository(plant: Plant) -> None:
    root = plant({"kept.txt": ""})
    (root / ".git").write_text("gitdir: nowhere\n")  # also where a folder above is a repository
    assert not is_repository(root)
