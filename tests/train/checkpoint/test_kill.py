"""Processes that are killed while they save."""

import random
import time
from contextlib import suppress
from pathlib import Path

import pytest

from clock import within
from penstock.errors import RunError
from penstock.train.checkpoint import Checkpoints, newest_in
from train.checkpoint import crew as tasks
from train.checkpoint.crew import CONTEXT, Crew, layers
from train.checkpoint.faults import empty_like, same

pytestmark = [pytest.mark.torch, pytest.mark.processes]


def test_a_process_killed_at_a_random_moment_loses_no_step_that_was_safe(tmp_path: Path) -> None:
    chance = random.Random(3)
    for run in range(6):
        folder = tmp_path / str(run)
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=tasks.save_forever, args=(folder, theirs), daemon=True)
        process.start()
        theirs.close()
        safe = ours.recv()
        time.sleep(chance.uniform(0, 0.1))
        process.kill()
        process.join()
        with suppress(EOFError):
            while True:
                safe = ours.recv()
        checkpoints = Checkpoints(folder, keep=2)
        found = checkpoints.newest() or pytest.fail("none")
        assert safe <= found.step <= safe + 1
        loaded = empty_like(layers([0], 0))
        checkpoints.load(found, loaded)
        assert same(loaded, layers([0], found.step))


@pytest.mark.parametrize(("culprit", "at"), [(0, 9), (1, 5)])
def test_when_one_rank_is_killed_in_a_save_the_other_ends_with_an_error(
    tmp_path: Path, culprit: int, at: int
) -> None:
    crew = Crew(2, tmp_path / "store")
    folder = tmp_path / "run"
    try:
        assert crew.do(tasks.save, folder, [[0], [1]], 1) == [None, None]
        with within(5, time.monotonic):
            answers = crew.do(tasks.save_and_die, folder, culprit, at)
    finally:
        crew.stop()
    assert answers[culprit] is None
    assert isinstance(answers[1 - culprit], RunError)
    assert "lost the connection to another rank" in str(answers[1 - culprit])
    assert (newest_in(folder) or pytest.fail("none")).step == 1
