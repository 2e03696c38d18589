"""A disk that fails, a process that dies, a machine that loses power: at every single operation."""

import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from files.faulty_disk import Fault, FaultyDisk, Killed, full, kill, lost, power_cut
from penstock.errors import RunError
from penstock.train.checkpoint import Checkpoints, newest_in
from train.checkpoint.faults import empty_like, same, tensors

pytestmark = pytest.mark.torch

NAME = "weights/model.norm.weight"


def values(step: int) -> dict[str, Tensor]:
    return {NAME: tensors(step)[NAME]}


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A folder with the checkpoint of step 1."""
    checkpoints = Checkpoints(tmp_path / "begun")
    checkpoints.save(1, values(1), {"samples": 10})
    checkpoints.wait()
    return checkpoints.folder


def train(folder: Path, disk: FaultyDisk) -> Iterator[int]:
    """Start, save step 2, delete step 1, and save step 2 once more in its place."""
    checkpoints = Checkpoints(folder, keep=1, disk=disk)
    yield 1
    for _ in range(2):
        checkpoints.save(2, values(2), {"samples": 20})
        checkpoints.wait()
        yield 2


def operations(begun: Path) -> list[str]:
    disk = FaultyDisk()
    folder = begun.with_name("counted")
    shutil.copytree(begun, folder)
    assert list(train(folder, disk)) == [1, 2, 2]
    return disk.done


def struck(begun: Path, at: int, fault: Fault) -> tuple[Path, int, BaseException | None]:
    """A run with one fault: its folder, the last step it knows to be safe, and how it ended."""
    folder = begun.with_name(f"{fault.__name__}-{at}")
    shutil.copytree(begun, folder)
    safe = 1
    try:
        for step in train(folder, FaultyDisk(at, fault)):
            safe = step
    except (RunError, Killed) as error:
        return folder, safe, error
    return folder, safe, None


def assert_whole(folder: Path, least: int) -> None:
    found = newest_in(folder)
    assert found is not None
    assert found.step >= least
    assert found.state["samples"] == 10 * found.step
    loaded = empty_like(values(1))
    Checkpoints(folder).load(found, loaded)
    assert same(loaded, values(found.step))


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_the_run_that_is_struck_writes_renames_syncs_and_deletes(begun: Path) -> None:
    done = operations(begun)
    counts = {name: done.count(name) for name in done}
    assert counts == {
        "make": 3,
        "create": 8,
        "write": counts["write"],
        "sync": 8,
        "sync folder": 6,
        "rename": 7,
        "remove": 2,
    }
    assert counts["write"] > 20


@pytest.mark.long
@pytest.mark.parametrize("fault", [kill, power_cut])
def test_whatever_operation_is_the_last_the_newest_safe_step_loads_after_a_restart(
    begun: Path, fault: Fault
) -> None:
    for at in range(len(operations(begun))):
        folder, safe, error = struck(begun, at, fault)
        assert isinstance(error, Killed), at
        restarted = Checkpoints(folder, keep=1)
        assert hidden(folder) == []
        assert_whole(folder, safe)
        restarted.save(3, values(3), {"samples": 30})
        restarted.wait()
        assert_whole(folder, 3)
        shutil.rmtree(folder)


@pytest.mark.long
def test_whatever_operation_fails_the_error_is_ours_and_the_run_can_go_on(begun: Path) -> None:
    for at, name in enumerate(operations(begun)):
        folder, safe, error = struck(begun, at, full)
        if name == "remove":
            assert error is None  # what is left is hidden, and deleted at the next start
        else:
            assert isinstance(error, RunError), at
            assert "No space left on device" in str(error)
        assert_whole(folder, safe)
        shutil.rmtree(folder)


def test_a_failed_save_leaves_nothing_behind_and_the_next_one_works(begun: Path) -> None:
    done = operations(begun)
    for at in (done.index("write") + 5, done.index("sync"), done.index("rename")):
        folder = begun.with_name(f"again-{at}")
        shutil.copytree(begun, folder)
        checkpoints = Checkpoints(folder, disk=FaultyDisk(at, full))
        checkpoints.save(2, values(2), {"samples": 20})
        with pytest.raises(RunError, match=r"step 2 was not saved.*nothing saved before is lost"):
            checkpoints.save(3, values(3), {"samples": 30})
        assert hidden(folder) == []
        checkpoints.save(3, values(3), {"samples": 30})
        assert (checkpoints.newest() or pytest.fail("none")).step == 3


def test_a_write_that_loses_its_half_in_silence_is_noticed_before_anything_is_deleted(
    begun: Path,
) -> None:
    done = operations(begun)
    first_save = range(done.index("write"), done.index("rename") + 10)
    for at in (at for at in first_save if done[at] == "write"):
        folder, safe, error = struck(begun, at, lost)
        assert safe == 1
        assert "the files differ from what was written" in str(error), at
        assert_whole(folder, 1)
        shutil.rmtree(folder)


def test_a_file_that_the_system_does_not_let_grow_is_a_clear_error(begun: Path) -> None:
    checkpoints = Checkpoints(begun)
    large = {NAME: torch.zeros(1 << 17)}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        checkpoints.save(2, large, {})
        with pytest.raises(RunError, match=r"File too large \(.*distcp\)"):
            checkpoints.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_whole(begun, 1)
