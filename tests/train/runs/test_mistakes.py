"""What goes wrong in the middle is said once, with its place, and costs nothing that was saved."""

import re
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from penstock.run.launch.launcher import launch
from penstock.run.process.machine import Machine
from penstock.train.checkpoint import newest_in
from train.runs.mistakes import (
    raise_in_closing,
    raise_in_data,
    raise_in_model,
    raise_in_model_and_closing,
    sleep_in_closing,
    sleep_in_evaluation,
    sleep_in_update,
    slow_disk,
    slow_text,
    small_files,
    without_room,
)
from train.runs.ranks import LIMIT, Ran, Setting, fresh

pytestmark = pytest.mark.torch

HALF = "step-00000004"


def saved(ran: Ran) -> int:
    """The step of the newest checkpoint that is whole."""
    return (newest_in(ran.folder / "checkpoints") or pytest.fail("none")).step


@pytest.fixture
def half(setting: Setting, undisturbed: Ran) -> Callable[[str], str]:
    """Makes the folder of a run that stands at step 4 of 8."""

    def make(name: str) -> str:
        folder = setting.folder / name / "checkpoints"
        shutil.copytree(undisturbed.folder / "checkpoints" / HALF, folder / HALF)
        shutil.copy(undisturbed.folder / "metrics.jsonl", folder.parent)
        return name

    return make


def test_an_exception_in_the_model_is_told_with_rank_op_and_lines(setting: Setting) -> None:
    """Four microbatches of two slices: the 13th forward is the fifth of step 2."""
    broken = partial(raise_in_model, 1, 13)
    ran = setting.run("checkpoint.every=1", name="broken", prepare=broken)
    assert ran.codes == (1, 1)
    assert len(ran.causes) == 1, ran.said
    said = ran.said[1]
    assert "error: rank 1, at 1F2 (op " in said
    assert "of step 2): ValueError: the layer is broken" in said
    assert "^^^" in said
    assert "in broken_layer" in said
    assert "penstock/train" not in said
    assert saved(ran) == 1


def test_an_exception_in_the_data_is_told_once_although_all_ranks_meet_it(
    setting: Setting,
) -> None:
    lost = partial(raise_in_data, 3)
    ran = setting.run("checkpoint.every=1", name="lost-disk", prepare=lost)
    assert ran.codes == (1, 1)
    assert len(ran.causes) == 1, ran.said
    assert (
        ", at step 3, while it reads its batch: OSError: [Errno 5] Input/output error"
        in ran.causes[0]
    )


def test_a_step_that_is_no_number_ends_the_run_before_it_reaches_the_weights(
    setting: Setting, undisturbed: Ran, half: Callable[[str], str]
) -> None:
    name = half("no-number")
    huge = ("optimizer.learning_rate=1e300", "checkpoint.every=100")
    ran = setting.run(*huge, name=name)
    assert ran.codes == (1, 1)
    assert len(ran.causes) == 1, ran.said
    assert re.search(r", at \dU0 \(op 18 of 18 of step 6\): the loss is ", ran.causes[0])
    assert "and the norm of the gradient nan" in ran.causes[0]
    assert "hint: lower the learning rate" in "".join(ran.said)
    assert saved(ran) == 4
    mended = setting.run(name=name)
    assert mended.codes == (0, 0), mended.said
    assert mended.records == undisturbed.records


def test_a_step_without_a_label_ends_the_run_before_it_reaches_the_weights(
    setting: Setting, tmp_path: Path
) -> None:
    """A thousand documents of one token, and one of two, which a batch of 128 tokens lacks."""
    lines = ['{"text": "a"}'] * 1000 + ['{"text": "ab"}']
    (tmp_path / "short.jsonl").write_text("\n".join(lines))
    data = ("data.source=jsonl", f'data.paths=["{tmp_path / "short.jsonl"}"]')
    ran = setting.run(*data, name="no-label")
    assert ran.codes == (1, 1)
    assert len(ran.causes) == 1, ran.said
    assert (
        ", at step 1, while it reads its batch: no label of the global batch counts"
        in ran.causes[0]
    )
    assert "hint: documents of a single token" in "".join(ran.said)
    assert ran.records == b""


def test_what_is_being_saved_when_a_step_is_no_number_is_safe(setting: Setting) -> None:
    huge = ("optimizer.learning_rate=1e300", "optimizer.warmup_steps=0", "checkpoint.every=1")
    ran = setting.run(*huge, name="in-flight", prepare=partial(slow_disk, 0.3))
    assert ran.codes == (1, 1)
    assert re.search(r", at \dU0 \(op 18 of 18 of step 2\): the loss is ", ran.causes[0])
    assert saved(ran) == 1


def test_a_full_disk_costs_the_checkpoint_and_no_more(
    setting: Setting, undisturbed: Ran, half: Callable[[str], str]
) -> None:
    name = half("full-disk")
    ran = setting.run(name=name, prepare=partial(small_files, 60_000))
    assert ran.codes == (1, 1)
    assert len(ran.causes) == 1, ran.said
    assert "step 8 was not saved: rank " in ran.causes[0]
    assert "File too large" in ran.causes[0]
    assert "nothing saved before is lost" in ran.causes[0]
    assert [path.name for path in (ran.folder / "checkpoints").iterdir()] == [HALF]
    assert saved(ran) == 4
    mended = setting.run(name=name)
    assert mended.codes == (0, 0), mended.said
    assert mended.records == undisturbed.records


@pytest.mark.parametrize(
    ("rank", "prepare", "place", "others"),
    [
        (3, sleep_in_update, r": it runs 1U0, at 1U0 \(op 19 of 19 of step 2\)", "end the step"),
        (1, sleep_in_evaluation, ", at step 2, while it evaluates", "count their labels"),
    ],
    ids=["update", "evaluation"],
)
def test_a_rank_that_sleeps_while_the_others_meet_is_named_once_with_its_place(
    setting: Setting, rank: int, prepare: Callable[[int, int], None], place: str, others: str
) -> None:
    """Two replicas of two devices: only in what all do together does one stop the other."""
    changes = ("mesh.replicas=2", "data.held_out=0.2", "evaluation.every=2", "watch.stuck=5")
    spoilt = partial(prepare, rank, 2)
    ran = setting.run(*changes, name=f"asleep-{rank}", ranks=4, prepare=spoilt)
    assert ran.codes == (1, 1, 1, 1)
    assert len(ran.causes) == 1, ran.said
    assert re.search(rf"error: rank {rank} has been stuck for [5-9]\.\d s{place}; ", ran.causes[0])
    assert f" for all ranks to {others}" in ran.causes[0]
    assert sorted(path.name for path in ran.folder.glob("checkpoints/*")) == []


def test_records_that_cannot_be_closed_fail_the_run_with_their_rank(setting: Setting) -> None:
    ran = setting.run("run.steps=2", name="unclosed", prepare=raise_in_closing)
    assert ran.codes == (1, 1)
    assert len(ran.causes) == 1, ran.said
    assert (
        "error: rank 0, at step 2, while it closes its records: OSError: [Errno 28]"
        in ran.causes[0]
    )
    assert saved(ran) == 2


@pytest.mark.matrix
def test_records_that_hang_in_closing_are_named_by_those_that_wait(setting: Setting) -> None:
    changes = ("run.steps=2", "watch.stuck=5")
    ran = setting.run(*changes, name="hung-records", prepare=sleep_in_closing)
    assert ran.codes == (1, 1)
    assert len(ran.causes) == 1, ran.said
    assert "error: rank 0 has been stuck for " in ran.causes[0]
    assert (
        "at step 2, while it closes its records; rank 1 waits for all ranks to close"
        in ran.causes[0]
    )


def test_what_went_wrong_first_is_said_where_closing_fails_too(setting: Setting) -> None:
    ran = setting.run(name="twice-broken", prepare=raise_in_model_and_closing)
    assert ran.codes == (1, 1)
    assert len(ran.causes) == 1, ran.said
    assert "ValueError: the layer is broken" in ran.causes[0]


@pytest.mark.matrix
def test_text_that_takes_longer_than_patience_to_tokenise_is_waited_for(setting: Setting) -> None:
    changes = ("run.steps=2", "watch.stuck=2")
    ran = setting.run(*changes, name="long-text", prepare=partial(slow_text, 4.0))
    assert ran.codes == (0, 0), ran.said


def tokens(folder: Path) -> list[str]:
    (folder / "tokens").mkdir()
    np.save(folder / "tokens" / "all.npy", np.arange(3000, dtype=np.uint16) % 257)
    return ["data.source=tokens", f'data.paths=["{folder / "tokens"}"]']


def empty(folder: Path) -> list[str]:
    (folder / "empty").mkdir()
    return [f'data.paths=["{folder / "empty"}"]']


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (empty, ("no file matches",)),
        (tokens, ("has token 256 at offset 256, but the model's vocabulary is 256",)),
        (lambda folder: ["batch.length=100000"], ("training data: a sequence has 100,000 tokens",)),
        (lambda folder: ["model.vocabulary=100"], ("has token 1", "vocabulary is 100")),
    ],
    ids=["empty folder", "token outside", "too little text", "small vocabulary"],
)
def test_data_that_cannot_be_trained_on_are_refused_once_before_the_first_step(
    setting: Setting,
    tmp_path: Path,
    changes: Callable[[Path], list[str]],
    words: tuple[str, ...],
) -> None:
    ran = setting.run(*changes(tmp_path), name=tmp_path.name)
    assert 2 in ran.codes
    assert 0 not in ran.codes
    assert len(ran.causes) == 1, ran.said
    assert all(word in ran.causes[0] for word in words), ran.causes
    assert not (ran.folder / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("here", "message"),
    [
        (Machine(cores=0.01), "2 processes would share 0.01 cores"),
        (Machine(cores=2, free=10**8), "2 processes need about 400 MB of memory"),
    ],
    ids=["cores", "memory"],
)
def test_ranks_that_torchrun_has_started_are_refused_as_well(
    setting: Setting, here: Machine, message: str
) -> None:
    """The first rank of the machine refuses, and the other hears of it before it waits for long."""
    began = time.monotonic()
    ran = setting.run(name=fresh("no-room"), prepare=partial(without_room, here))
    assert ran.codes[0] == 2
    assert ran.codes[1] in (1, 2)
    assert [cause.partition(message)[0] for cause in ran.causes] == [
        "error: rank 0, before the first step, while it starts: "
    ], ran.said
    assert time.monotonic() - began < LIMIT / 4


def test_one_process_with_a_launcher_says_once_what_is_wrong(
    setting: Setting, capfd: pytest.CaptureFixture[str]
) -> None:
    alone = ("pipeline.devices=1", 'data.paths=["nowhere"]')
    assert launch(setting.words(*alone, name="alone"), 1) == 2
    said = capfd.readouterr().err
    assert said.count("error: ") == 1, said
    assert (
        "error: rank 0, before the first step, while it opens the data: no file matches 'nowhere'"
        in said
    )
