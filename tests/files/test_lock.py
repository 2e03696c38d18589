"""A lock has one holder, and leaves no file behind."""

import os
from pathlib import Path

from penstock.files.lock import hold_lock


def test_one_holds_a_lock_and_the_next_gets_it_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with hold_lock(path) as first, hold_lock(path) as second:
        assert (first, second) == (True, False)
    assert not path.exists()
    with hold_lock(path) as again:
        assert again


def test_who_does_not_get_a_lock_leaves_it_to_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with hold_lock(path):
        with hold_lock(path) as second:
            assert not second
        assert path.exists()
        with hold_lock(path) as third:
            assert not third


def test_a_file_that_was_deleted_meanwhile_locks_nothing(tmp_path: Path) -> None:
    """One waits with the file open, the holder deletes it and a third makes a new one."""
    path = tmp_path / "lock"
    with hold_lock(path):
        os.rename(path, tmp_path / "moved")
        with hold_lock(path) as held:
            assert held
