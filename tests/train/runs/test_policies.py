"""One set of records under every data policy: the same curve, also when a run is interrupted."""

import json
import random
import shutil
from collections.abc import Callable
from functools import cache

import pytest

from loops import one_of
from train.runs.ranks import Ran, Setting, fresh

pytestmark = pytest.mark.torch

LONG = 50
"""Steps of a trajectory."""
CLOSE = 1e-8
"""Relative error of a loss in float64 after fifty steps, when only the order of additions has
changed."""
ONE_DEVICE = ("pipeline.devices=1", "pipeline.schedule=1f1b", "pipeline.slices=1")
CHUNK = ("data.policy=chunk", "data.slice_tokens=16", "pipeline.schedule=chunkflow-paced")
RULE = ("pipeline.options.retain=1", "pipeline.options.warmup=2", "pipeline.slices=1")
FLEX = ("data.policy=flex", "mesh.sequence=2", *ONE_DEVICE)
HALF_EACH = ("mesh.replicas=2", "batch.microbatches=4")
POLICIES: dict[str, tuple[int, tuple[str, ...]]] = {
    "pack": (1, ONE_DEVICE),
    "flex with replicas": (4, (*FLEX, *HALF_EACH)),
    "flex": (2, FLEX),
    "chunk": (2, (*CHUNK, *RULE)),
    "flex, groups of one size": (2, (*FLEX, "data.groups=static")),
    "flex, the best size of a batch": (2, (*FLEX, "data.groups=batch-adaptive")),
    "flex with replicas that share weights": (4, (*FLEX, *HALF_EACH, "mesh.shard=full")),
    "flex with slices": (
        4,
        (*FLEX, "pipeline.devices=2", "pipeline.schedule=seq1f1b", "pipeline.slices=3"),
    ),
    "flex with rings": (4, (*FLEX, "mesh.sequence=4", "mesh.ring=2")),
    "chunk with replicas": (4, (*CHUNK, *RULE, *HALF_EACH)),
}
"""Ranks, and what else is changed."""
FIFTY = ("chunk", "flex", "flex with replicas", "flex with slices", "flex, groups of one size")
STOPPED = [
    ("flex with replicas", 3),
    *((policy, step) for policy in ("pack", "chunk", "flex") for step in (1, 3, 5)),
    *((policy, 4) for policy in POLICIES if policy not in ("pack", "chunk", "flex")),
]
"""Policies, and steps after which a run is interrupted."""


@pytest.fixture(scope="module")
def records(setting: Setting) -> tuple[str, ...]:
    """Documents from one token to the longest, in batches by tokens."""
    draw, path = random.Random(15), setting.folder / "unequal.jsonl"
    lengths = [1, 2, 60, *(min(60, int(draw.lognormvariate(2, 1)) + 1) for _ in range(60))]
    lines = [json.dumps({"text": "".join(draw.choices("abcdef ", k=size))}) for size in lengths]
    path.write_text("\n".join(lines))
    return (
        "data.source=jsonl",
        f'data.paths=["{path}"]',
        "data.packing=single",
        "batch.length=60",
        "batch.microbatches=8",
        "batch.tokens=150",
        "checkpoint.keep=99",
    )


@pytest.fixture(scope="module")
def packed(setting: Setting, records: tuple[str, ...]) -> Ran:
    ranks, changes = POLICIES["pack"]
    long = (f"run.steps={LONG}", "checkpoint.every=0")
    ran = setting.run(*records, *changes, *long, name=fresh("long"), ranks=ranks)
    assert set(ran.codes) == {0}, ran.said
    return ran


@pytest.mark.matrix
@pytest.mark.parametrize("policy", FIFTY)
def test_trajectories_of_fifty_steps_are_equal(
    setting: Setting, records: tuple[str, ...], packed: Ran, policy: str
) -> None:
    ranks, changes = POLICIES[policy]
    long = (f"run.steps={LONG}", "checkpoint.every=0")
    ran = setting.run(*records, *changes, *long, name=fresh("long"), ranks=ranks)
    assert set(ran.codes) == {0}, ran.said
    assert len(ran.losses) == LONG
    assert ran.losses == pytest.approx(packed.losses, rel=CLOSE, abs=0)
    assert [each["tokens"] for each in ran.metrics] == [each["tokens"] for each in packed.metrics]


@pytest.fixture(scope="module")
def whole(setting: Setting, records: tuple[str, ...]) -> Callable[[str], Ran]:
    """Runs that nothing happens to, each with a checkpoint after every step."""

    @cache
    def run(policy: str) -> Ran:
        ranks, changes = POLICIES[policy]
        saved = ("run.steps=6", "checkpoint.every=1")
        ran = setting.run(*records, *changes, *saved, name=fresh("whole"), ranks=ranks)
        assert set(ran.codes) == {0}, ran.said
        return ran

    return run


@pytest.mark.parametrize(("policy", "stopped"), one_of(len(STOPPED), STOPPED, every=2))
def test_a_run_that_was_interrupted_goes_on_bit_for_bit(
    setting: Setting,
    records: tuple[str, ...],
    whole: Callable[[str], Ran],
    policy: str,
    stopped: int,
) -> None:
    ranks, changes = POLICIES[policy]
    folder, step = setting.folder / fresh("interrupted"), f"step-{stopped:08}"
    folder.mkdir()
    before = whole(policy)
    shutil.copytree(before.folder / "checkpoints" / step, folder / "checkpoints" / step)
    shutil.copy(before.folder / "metrics.jsonl", folder)
    rest = setting.run(*records, *changes, "run.steps=6", name=folder.name, ranks=ranks)
    assert set(rest.codes) == {0}, rest.said
    assert f"continues from step {stopped}" in rest.said[0]
    assert rest.records == before.records
