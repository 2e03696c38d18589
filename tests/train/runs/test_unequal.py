"""Runs under `data.policy = "chunk"`: the same batches, grouped and ordered for their lengths."""

import json
import shutil

import pytest

from loops import one_of
from train.runs.ranks import Ran, Setting, fresh
from train.runs.test_resume import halfway

pytestmark = pytest.mark.torch

CLOSE = 1e-9
"""Relative error of a loss in float64 when only the order of additions has changed."""
CHUNK = ("data.policy=chunk", "pipeline.schedule=chunkflow-paced", "pipeline.slices=1")
SMALL = ("data.slice_tokens=9", "pipeline.options.retain=1", "pipeline.options.warmup=2")
HALF_EACH = ("mesh.replicas=2", "batch.microbatches=2")
MESHES: dict[str, tuple[int, tuple[str, ...]]] = {
    "2 devices": (2, ()),
    "1 device": (1, ("pipeline.devices=1",)),
    "2 replicas": (4, HALF_EACH),
    "2 replicas that share weights": (4, (*HALF_EACH, "mesh.shard=full")),
    "tensor ranks": (4, ("mesh.tensor=2",)),
    "ulysses ranks": (4, ("mesh.sequence=2",)),
    "ring ranks": (4, ("mesh.sequence=2", "mesh.ring=2")),
    "updates validated later": (2, ("optimizer.validation=after",)),
    "devices that stay ahead": (2, ("pipeline.schedule=chunkflow",)),
}
"""Ranks, and what else is changed."""


@pytest.mark.parametrize("mesh", one_of(8, ((mesh,) for mesh in MESHES)))
def test_the_trajectory_is_that_of_packed_sequences(
    setting: Setting, undisturbed: Ran, mesh: str
) -> None:
    ranks, changes = MESHES[mesh]
    ran = setting.run(*CHUNK, *SMALL, *changes, name=fresh("unequal"), ranks=ranks)
    assert set(ran.codes) == {0}, ran.said
    assert ran.losses == pytest.approx(undisturbed.losses, rel=CLOSE, abs=0)
    norms = [record["norm"] for record in undisturbed.metrics]
    assert [record["norm"] for record in ran.metrics] == pytest.approx(norms, rel=CLOSE, abs=0)
    assert "documents in slices of up to 9 tokens" in ran.said[0]


@pytest.mark.matrix
def test_trajectories_of_fifty_steps_are_equal(setting: Setting) -> None:
    long = ("run.steps=50",)
    packed = setting.run(*long, name=fresh("long-packed"))
    sliced = setting.run(*long, *CHUNK, *SMALL, name=fresh("long-sliced"))
    assert packed.codes == sliced.codes == (0, 0)
    assert len(sliced.losses) == 50
    assert sliced.losses == pytest.approx(packed.losses, rel=1e-8, abs=0)


@pytest.fixture(scope="session")
def chosen(setting: Setting) -> Ran:
    """A run that chooses its slices, with a checkpoint after every step."""
    ran = setting.run(*CHUNK, "checkpoint.every=1", "checkpoint.keep=9", name=fresh("chosen"))
    assert ran.codes == (0, 0), ran.said
    return ran


@pytest.mark.parametrize("stopped", one_of(7, ((step,) for step in range(1, 8))))
def test_a_run_that_was_interrupted_goes_on_bit_for_bit(
    setting: Setting, chosen: Ran, stopped: int
) -> None:
    """Also where less memory is free than when its slices were chosen."""
    name, step = fresh("resumed"), f"step-{stopped:08}"
    folder = setting.folder / name
    folder.mkdir()
    shutil.copytree(chosen.folder / "checkpoints" / step, folder / "checkpoints" / step)
    shutil.copy(chosen.folder / "metrics.jsonl", folder)
    rest = setting.run(*CHUNK, "plan.memory=1", name=name)
    assert rest.codes == (0, 0), rest.said
    assert rest.records == chosen.records
    assert "as the run began" in rest.said[0]


def test_slices_are_chosen_by_the_lengths_and_the_memory(setting: Setting, chosen: Ran) -> None:
    assert "the fastest by simulation of" in chosen.said[0]
    none = setting.run(*CHUNK, "plan.memory=1", name=fresh("no-room"))
    assert all(none.codes), none.said
    assert any("has room" in cause for cause in none.causes), none.said


def test_an_evaluation_is_that_of_packed_sequences(setting: Setting) -> None:
    held = ("data.held_out=0.2", "evaluation.every=4", "evaluation.batches=2")
    runs = [
        setting.run(*held, *changes, name=fresh("evaluated")) for changes in ((), (*CHUNK, *SMALL))
    ]
    assert [ran.codes for ran in runs] == [(0, 0)] * 2
    packed, sliced = (
        [record["evaluation"] for record in ran.metrics if "evaluation" in record] for ran in runs
    )
    assert len(packed) == 2
    assert sliced == pytest.approx(packed, rel=CLOSE, abs=0)


def test_a_report_looks_at_a_batch_of_its_own_order(setting: Setting) -> None:
    ran = setting.run(
        *CHUNK, *SMALL, "log.report=true", "run.steps=2", name=fresh("reported"), flags=("--json",)
    )
    assert ran.codes == (0, 0), ran.said
    outcome = json.loads(ran.said[0][ran.said[0].index("{") :])
    (row,) = outcome["schedules"]
    assert row["name"] == "chunkflow-paced"
    assert min(row["predicted_peak"]) > 0
    assert row["predicted_seconds"] > 0


def test_a_run_may_be_continued_under_another_policy(setting: Setting, undisturbed: Ran) -> None:
    folder = halfway(setting, undisturbed, fresh("from-packed"))
    ran = setting.run(*CHUNK, *SMALL, name=folder.name)
    assert ran.codes == (0, 0), ran.said
    assert ran.losses == pytest.approx(undisturbed.losses, rel=CLOSE, abs=0)
