"""Fine-tuning on records of unequal lengths, in batches by tokens, interrupted and continued."""

import json
import random
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from loops import one_of
from train.runs.ranks import Ran, Setting, fresh
from train.runs.test_resume import CLOSE

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def changes(setting: Setting) -> tuple[str, ...]:
    """Two sources of prompts with completions, of which one is too long."""
    draw, paths = random.Random(3), []
    for name in "ab":
        path = setting.folder / f"records-{name}.jsonl"
        sizes = [(draw.randrange(1, 9), draw.randrange(1, 20)) for _ in range(12)]
        records = [{"prompt": "ab" * one, "completion": "cd" * other} for one, other in sizes]
        lines = [json.dumps(record) for record in [*records, {"text": ""}, {"text": "e" * 99}]]
        path.write_text("\n".join(lines))
        paths.append(str(path))
    return (
        "data.source=records",
        f"data.paths={json.dumps(paths)}",
        "data.weights=[0.7, 0.3]",
        "data.packing=single",
        "data.longer=drop",
        "batch.length=60",
        "batch.tokens=120",
        "checkpoint.keep=9",
    )


@pytest.fixture(scope="module")
def tuned(setting: Setting, changes: tuple[str, ...]) -> Ran:
    ran = setting.run(*changes, name=fresh("tuned"))
    assert ran.codes == (0, 0), ran.said
    return ran


def test_what_is_left_out_is_said_with_its_place(tuned: Ran, setting: Setting) -> None:
    path = str(setting.folder / "records-a.jsonl")
    said = tuned.said[0]
    assert f"1 of 14 documents are empty and skipped, first line 13 of {path!r}" in said
    assert "1 of 13 documents have more than 60 tokens and are left out, 99 tokens" in said
    assert f"line 14 of {path!r}) is the longest with 99 tokens" in said


def test_batches_have_at_most_so_many_tokens_and_padding_does_not_count(tuned: Ran) -> None:
    totals = [0, *(record["tokens"] for record in tuned.metrics)]
    steps = [after - before for before, after in pairwise(totals)]
    assert all(0 < tokens <= 120 for tokens in steps)
    assert len({*steps}) > 1


def test_a_step_trains_on_what_it_counts_and_on_nothing_else(setting: Setting) -> None:
    """Room for four sequences, tokens for one: each step is that of one sequence."""
    alone = ("pipeline.devices=1", "pipeline.schedule=1f1b", "pipeline.slices=1", "run.steps=3")
    limited, single = (
        setting.run(*alone, change, name=fresh("limited"), ranks=1)
        for change in ("batch.tokens=32", "batch.microbatches=1")
    )
    assert limited.codes == single.codes == (0,), limited.said
    assert limited.losses == pytest.approx(single.losses, rel=CLOSE, abs=0)
    assert [record["tokens"] for record in limited.metrics] == [32, 64, 96]


CHUNK = (
    "data.policy=chunk",
    "data.slice_tokens=16",
    "pipeline.schedule=chunkflow-paced",
    "pipeline.options.retain=1",
    "pipeline.options.warmup=2",
    "pipeline.slices=1",
)


FLEX = ("data.policy=flex", "mesh.sequence=2", "pipeline.slices=1", "pipeline.schedule=1f1b")


@pytest.mark.parametrize(
    ("policy", "ranks", "step"), one_of(3, [((), 2, 2), ((), 2, 5), (CHUNK, 2, 3), (FLEX, 4, 4)])
)
def test_a_run_interrupted_at_any_step_goes_on_bit_by_bit(
    setting: Setting,
    tuned: Ran,
    changes: tuple[str, ...],
    policy: tuple[str, ...],
    ranks: int,
    step: int,
) -> None:
    """And the policy changes neither which tokens a step has nor what is learned from them."""
    name = fresh("interrupted")
    begun = setting.run(*changes, *policy, f"checkpoint.every={step}", name=name, ranks=ranks)
    assert set(begun.codes) == {0}, begun.said
    assert begun.losses == pytest.approx(tuned.losses, rel=CLOSE, abs=0)
    tokens = [[record["tokens"] for record in ran.metrics] for ran in (begun, tuned)]
    assert tokens[0] == tokens[1]
    whole = begun.records
    for newer in Path(begun.folder, "checkpoints").glob("step-*"):
        if newer.name > f"step-{step:08}":
            shutil.rmtree(newer)
    again = setting.run(*changes, *policy, name=name, ranks=ranks)
    assert f"continues from step {step}" in again.said[0]
    assert again.records == whole


def test_a_file_that_changed_between_a_run_and_its_resume_is_named(setting: Setting) -> None:
    folder, name = setting.folder / fresh("texts"), fresh("changed")
    shutil.copytree(setting.folder / "text", folder)
    of_it = (f'data.paths=["{folder}"]', "batch.microbatches=2")
    begun = setting.run(*of_it, "run.steps=4", name=name)
    assert begun.codes == (0, 0), begun.said
    with (folder / "03.txt").open("a") as file:
        file.write(" and more")
    again = setting.run(*of_it, name=name)
    assert len(again.causes) == 1
    assert f"{str(folder / '03.txt')!r} has changed" in again.causes[0]


@pytest.mark.parametrize(
    ("ranks", "layout"),
    [
        (1, ("pipeline.devices=1", "pipeline.schedule=1f1b", "pipeline.slices=1")),
        (4, ("mesh.replicas=2", "batch.microbatches=2")),
    ],
)
def test_other_layouts_have_the_same_curve(
    setting: Setting, tuned: Ran, changes: tuple[str, ...], ranks: int, layout: tuple[str, ...]
) -> None:
    ran = setting.run(*changes, *layout, name=fresh("layout"), ranks=ranks)
    assert set(ran.codes) == {0}, ran.said
    assert ran.losses == pytest.approx(tuned.losses, rel=CLOSE, abs=0)


@pytest.mark.matrix
def test_a_limit_of_tokens_decides_what_is_trained_on(setting: Setting) -> None:
    """Of four places one is taken: the same as where there is one place, under every policy."""
    one = setting.run("batch.microbatches=1", name=fresh("one-place"))
    chunk = ("data.policy=chunk", "pipeline.schedule=chunkflow-paced", "pipeline.slices=1")
    for policy in ((), (*chunk, "data.slice_tokens=9", "pipeline.options.retain=1")):
        limited = setting.run("batch.tokens=32", *policy, name=fresh("limited"))
        assert limited.codes == (0, 0), limited.said
        assert limited.losses == pytest.approx(one.losses, rel=CLOSE, abs=0)
