"""Several processes that save and load together."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import RunError
from penstock.train.checkpoint import newest_in
from penstock.train.checkpoint.copies import digest_of_tensor
from penstock.train.checkpoint.folders import checkpoint_path
from train.checkpoint import crew as tasks
from train.checkpoint.crew import Crew, Split, layers

pytestmark = pytest.mark.torch

SPLITS: list[Split] = [
    [[0, 1, 2, 3, 4, 5]],
    [[0, 1, 2, 3], [4, 5]],
    [[0, 5], [1, 4], [3, 2]],
    [[4], [0, 2, 3], [], [5, 1]],
]
"""Layers over 1 to 4 ranks: consecutive, folded back, mixed, and a rank with none."""


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    crew = Crew(4, tmp_path_factory.mktemp("crew") / "store")
    yield crew
    crew.stop()


def saved(crew: Crew, folder: Path, split: Split, step: int = 1) -> None:
    outcome = crew.do(tasks.save, folder, split, step, members=len(split))
    assert outcome == [None] * len(split)


def errors(outcome: list[object]) -> set[str]:
    assert all(isinstance(error, RunError) for error in outcome), outcome
    return {str(error) for error in outcome}


@pytest.mark.parametrize("writers", SPLITS, ids=len)
def test_what_any_ranks_saved_any_other_ranks_load_bit_for_bit(
    crew: Crew, tmp_path: Path, writers: Split
) -> None:
    saved(crew, tmp_path, writers, step=7)
    for readers in SPLITS:
        answers = crew.do(tasks.load, tmp_path, readers, members=len(readers))
        for numbers, answer in zip(readers, answers):
            wanted = {name: digest_of_tensor(tensor) for name, tensor in layers(numbers, 7).items()}
            assert answer == (7, wanted)


def test_without_a_group_all_ranks_save_together(crew: Crew, tmp_path: Path) -> None:
    assert crew.do(tasks.save_in_own_group, tmp_path) == [None] * 4
    split: Split = [[0, 1, 2, 3]]
    wanted = {name: digest_of_tensor(tensor) for name, tensor in layers(split[0], 1).items()}
    assert crew.do(tasks.load, tmp_path, split, members=1) == [(1, wanted)]


def test_ranks_that_read_different_checkpoints_of_one_step_are_refused(
    crew: Crew, tmp_path: Path
) -> None:
    saved(crew, tmp_path, [[0], [1]])
    outcome = errors(crew.do(tasks.newest_of_own, tmp_path, members=2))
    assert len(outcome) == 1, outcome
    assert "is another checkpoint for rank 1 than for rank 0" in outcome.pop()


def test_replicas_that_agree_are_stored_once(crew: Crew, tmp_path: Path) -> None:
    saved(crew, tmp_path, [[0, 1], [2], [0, 1], [2]])
    files = {path.name for path in checkpoint_path(tmp_path, 1).glob("*.distcp")}
    assert files == {"__0_0.distcp", "__1_0.distcp"}
    answers = crew.do(tasks.load, tmp_path, [[0, 1], [2], [0, 1], [2]])
    assert answers[:2] == answers[2:]


def test_replicas_that_differ_in_one_bit_are_refused_with_name_and_ranks(
    crew: Crew, tmp_path: Path
) -> None:
    name = "weights/model.layers.1.weight"
    outcome = errors(crew.do(tasks.save_other_value, tmp_path, name))
    assert len(outcome) == 1
    assert f"{name} differs between rank 1 and rank 3" in outcome.pop()
    assert list(tmp_path.iterdir()) == []


def test_states_that_differ_are_refused(crew: Crew, tmp_path: Path) -> None:
    outcome = errors(crew.do(tasks.save_other_state, tmp_path))
    assert len(outcome) == 1
    assert "rank 2 saves the state" in outcome.pop()


@pytest.mark.parametrize("culprit", [0, 2])
def test_a_full_disk_of_one_rank_is_the_same_error_on_all_and_loses_nothing(
    crew: Crew, tmp_path: Path, culprit: int
) -> None:
    saved(crew, tmp_path, [[0], [1], [2], [3]])
    outcome = errors(crew.do(tasks.save_on_full_disk, tmp_path, culprit))
    assert len(outcome) == 1
    assert f"rank {culprit}: No space left on device" in outcome.pop()
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert (newest_in(tmp_path) or pytest.fail("none")).step == 1


def test_a_name_that_one_rank_misses_is_refused_on_all(crew: Crew, tmp_path: Path) -> None:
    saved(crew, tmp_path, [[0], [1], [2], [3]])
    outcome = errors(crew.do(tasks.load, tmp_path, [[0], [1], [2], [4]]))
    assert len(outcome) == 1
    assert "layers.3.weight" in outcome.pop()


def test_all_ranks_take_the_same_older_one_when_the_newest_is_damaged(
    crew: Crew, tmp_path: Path
) -> None:
    for step in (1, 2):
        saved(crew, tmp_path, [[0], [1], [2], [3]], step=step)
    for name in ("__1_0.distcp", "__3_0.distcp"):
        path = checkpoint_path(tmp_path, 2) / name
        path.write_bytes(bytes(path.stat().st_size))
    answers = crew.do(tasks.newest, tmp_path)
    assert answers == [answers[0]] * 4
    step, damaged = answers[0]
    assert step == 1
    assert "__1_0.distcp" in damaged[0]
    assert "__3_0.distcp" in damaged[0]
