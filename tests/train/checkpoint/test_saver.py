"""What is stored, when, and for how long."""

import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor

from penstock.errors import RunError, ShapeError
from penstock.files.durable import Disk
from penstock.train.checkpoint import Checkpoints, TensorKind, load_part, newest_in, stored_kinds
from penstock.train.checkpoint.folders import checkpoint_path, steps
from train.checkpoint.faults import empty_like, same, tensors

pytestmark = pytest.mark.torch


class SlowDisk(Disk):
    """Renames nothing before it is told to."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def rename(self, source: Path, target: Path) -> None:
        assert self.go.wait(30)
        super().rename(source, target)


def saved(folder: Path, *numbers: int, keep: int = 3) -> Checkpoints:
    checkpoints = Checkpoints(folder, keep=keep)
    for step in numbers:
        checkpoints.save(step, tensors(step), {"samples": step})
    checkpoints.wait()
    return checkpoints


def loaded(folder: Path) -> dict[str, Tensor]:
    found = newest_in(folder) or pytest.fail("no checkpoint")
    values = empty_like(tensors(0))
    Checkpoints(folder).load(found, values)
    return values


def test_what_was_saved_comes_back_bit_for_bit_with_its_state(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 120)
    found = checkpoints.newest() or pytest.fail("no checkpoint")
    assert found.folder == tmp_path / "step-00000120"
    assert found.state == {"samples": 120, "step": 120, "torch": torch.__version__}
    assert same(loaded(tmp_path), tensors(120))


def test_the_values_of_the_call_are_stored_although_training_goes_on(tmp_path: Path) -> None:
    disk = SlowDisk()
    checkpoints = Checkpoints(tmp_path, disk=disk)
    values = tensors(5)
    checkpoints.save(5, values, {})
    assert newest_in(tmp_path) is None  # the call returned before anything was safe
    for tensor in values.values():
        tensor.zero_()
    disk.go.set()
    checkpoints.wait()
    assert same(loaded(tmp_path), tensors(5))


def test_parameters_views_and_special_numbers_are_stored_as_they_are(tmp_path: Path) -> None:
    strange = {
        "weights/parameter": torch.nn.Parameter(torch.arange(6.0).reshape(2, 3)),
        "weights/transposed": torch.arange(6.0).reshape(2, 3).t(),
        "weights/part": torch.arange(100.0)[10:13],
        "weights/special": torch.tensor([float("nan"), float("-inf"), -0.0, 5e-324]).double(),
    }
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, strange, {})
    found = checkpoints.newest() or pytest.fail("no checkpoint")
    back = {name: torch.zeros_like(tensor) for name, tensor in strange.items()}
    back["weights/parameter"].requires_grad_()
    checkpoints.load(found, back)
    for name, tensor in strange.items():
        one, other = tensor.detach().contiguous(), back[name].detach().contiguous()
        assert torch.equal(one.view(torch.uint8), other.view(torch.uint8)), name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_of_a_gpu_are_stored_as_they_were_at_the_call_and_come_back_to_it(
    tmp_path: Path,
) -> None:
    values = {name: tensor.cuda() for name, tensor in tensors(4).items()}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(4, values, {})
    for tensor in values.values():
        tensor.zero_()
    found = checkpoints.newest() or pytest.fail("no checkpoint")
    checkpoints.load(found, values)
    assert all(tensor.is_cuda for tensor in values.values())
    assert same({name: tensor.cpu() for name, tensor in values.items()}, tensors(4))


def test_the_files_of_a_view_are_as_small_as_the_view(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"weights/part": torch.zeros(1_000_000)[:3]}, {})
    checkpoints.wait()
    assert (checkpoint_path(tmp_path, 1) / "__0_0.distcp").stat().st_size < 10_000


def test_the_newest_are_kept_and_the_older_deleted(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3, 4, 5, keep=2)
    assert steps(tmp_path) == [4, 5]
    saved(tmp_path, 6, keep=1)
    assert steps(tmp_path) == [6]


def test_damaged_ones_do_not_count_as_kept_and_go_when_they_are_older(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3)
    (checkpoint_path(tmp_path, 2) / "__0_0.distcp").unlink()
    saved(tmp_path, 4, keep=3)
    assert steps(tmp_path) == [1, 2, 3, 4]
    saved(tmp_path, 5, keep=3)
    assert steps(tmp_path) == [3, 4, 5]


def test_a_damaged_newer_one_never_pushes_out_the_good_ones(tmp_path: Path) -> None:
    saved(tmp_path, 100, 120, keep=2)
    path = checkpoint_path(tmp_path, 120) / "__0_0.distcp"
    path.write_bytes(bytes(path.stat().st_size))  # of the right size: only its hash tells
    saved(tmp_path, 110, keep=1)
    assert steps(tmp_path) == [110, 120]
    with pytest.warns(UserWarning, match="step-00000120 is damaged"):
        assert same(loaded(tmp_path), tensors(110))


def test_a_step_that_is_saved_again_replaces_what_was_there(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2)
    (checkpoint_path(tmp_path, 2) / "manifest.json").unlink()
    saved(tmp_path, 2)
    assert same(loaded(tmp_path), tensors(2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]


def test_leftovers_of_a_dead_run_are_removed_and_what_it_put_aside_is_put_back(
    tmp_path: Path,
) -> None:
    saved(tmp_path, 1)
    checkpoint_path(tmp_path, 1).rename(tmp_path / ".aside-step-00000001")
    (tmp_path / ".partial-step-00000002-00ff").mkdir()
    (tmp_path / ".partial-step-00000002-00ff" / "__0_0.distcp").write_text("half")
    Checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_reader_leaves_alone_what_another_process_is_writing(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    (tmp_path / ".partial-step-00000002-00ff").mkdir()
    assert (newest_in(tmp_path) or pytest.fail("none")).step == 1
    assert (tmp_path / ".partial-step-00000002-00ff").is_dir()


def test_a_state_that_is_not_json_is_refused_at_once(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for state in ({"loss": float("nan")}, {"rng": object()}):
        with pytest.raises(RunError, match="cannot be written as JSON"):
            checkpoints.save(1, tensors(1), state)
    assert checkpoints.newest() is None


def test_numbers_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match="0 checkpoints cannot be kept"):
        Checkpoints(tmp_path, keep=0)
    with pytest.raises(ShapeError, match="step -1 cannot be saved"):
        Checkpoints(tmp_path).save(-1, tensors(1), {})


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"checkpoints cannot be kept in .*file"):
        Checkpoints(tmp_path / "file")


def test_names_that_are_missing_or_left_over_are_refused_by_name(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    found = checkpoints.newest() or pytest.fail("no checkpoint")
    less = empty_like(tensors(1))
    del less["exp_avg/model.norm.weight"]
    with pytest.raises(RunError, match=r"has exp_avg/model.norm.weight, which this run does not"):
        checkpoints.load(found, less)
    more = {**empty_like(tensors(1)), "weights/model.norm.weigt": torch.zeros(1)}
    with pytest.raises(RunError, match=r"does not have weights/model\.norm\.weigt\n.*did you mean"):
        checkpoints.load(found, more)
    assert all(not tensor.any() for tensor in less.values())


def test_another_shape_or_type_is_refused_by_name(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    found = checkpoints.newest() or pytest.fail("no checkpoint")
    values = empty_like(tensors(1))
    name = "weights/model.norm.weight"
    with pytest.raises(RunError, match=r"\[16\] of float32 in step-00000001, but \[4, 4\] of"):
        checkpoints.load(found, {**values, name: torch.zeros(4, 4)})
    with pytest.raises(RunError, match=r"but \[16\] of float64 in this run"):
        checkpoints.load(found, {**values, name: torch.zeros(16).double()})


def test_a_part_can_be_listed_and_loaded_alone(tmp_path: Path) -> None:
    found = saved(tmp_path, 1).newest() or pytest.fail("no checkpoint")
    kinds = stored_kinds(found)
    assert kinds["exp_avg/model.norm.weight"] == TensorKind((3, 5), torch.float64)
    assert kinds.keys() == tensors(1).keys()
    part = {"steps/model.norm.weight": torch.tensor(0)}
    load_part(found, part)
    assert part["steps/model.norm.weight"] == 1


def test_a_checkpoint_that_vanishes_after_it_was_found_is_our_own_error(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    found = checkpoints.newest() or pytest.fail("no checkpoint")
    (found.folder / ".metadata").unlink()
    with pytest.raises(RunError, match="No such file"):
        checkpoints.load(found, empty_like(tensors(1)))
    with pytest.raises(RunError, match="cannot be read as a checkpoint"):
        stored_kinds(found)


def test_what_is_set_aside_is_kept_and_not_met_again(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    for step in (3, 5):
        checkpoints = Checkpoints(folder)
        checkpoints.save(step, {"weights/a": torch.full((2,), float(step))}, {})
        checkpoints.set_aside()
        assert checkpoints.newest() is None
    kept = [
        newest_in(tmp_path / name) for name in ("checkpoints.previous", "checkpoints.previous-2")
    ]
    assert [found.step for found in kept if found] == [3, 5]
