"""Runs under `data.policy = "flex"`: the same batches, on groups of ranks of unequal sizes."""

import json
import shutil

import pytest

from loops import one_of
from penstock.errors import PenstockError
from penstock.train.config.load import load
from profiling.made_up import profile
from train.runs.ranks import Ran, Setting, fresh

pytestmark = pytest.mark.torch

CLOSE = 1e-9
"""Relative error of a loss in float64 when only the order of additions has changed."""
FLEX = ("data.policy=flex", "pipeline.schedule=1f1b", "pipeline.slices=1", "mesh.sequence=2")
HALF_EACH = ("mesh.replicas=2", "batch.microbatches=2", "pipeline.devices=1")
MESHES: dict[str, tuple[int, tuple[str, ...]]] = {
    "2 ranks": (2, ("pipeline.devices=1",)),
    "2 devices of 2 ranks that share weights": (4, ("mesh.shard=full",)),
    "2 devices of 2 ranks": (4, ()),
    "2 devices, interleaved": (4, ("pipeline.schedule=interleaved",)),
    "2 replicas": (4, HALF_EACH),
    "2 replicas that share weights": (4, (*HALF_EACH, "mesh.shard=full")),
    "slices": (4, ("pipeline.schedule=seq1f1b", "pipeline.slices=2")),
    "rings": (4, ("mesh.sequence=4", "mesh.ring=2", "pipeline.devices=1")),
    "room for more tokens": (4, ("data.rank_tokens=40",)),
    "groups of one size": (4, ("data.groups=static", "data.rank_tokens=40")),
    "groups of two in all steps": (2, ("pipeline.devices=1", "data.groups=static")),
    "the best size of a batch": (4, ("data.groups=batch-adaptive", "data.rank_tokens=40")),
}
"""Ranks, and what else is changed."""


@pytest.mark.parametrize("mesh", one_of(8, ((mesh,) for mesh in MESHES)))
def test_the_trajectory_is_that_of_packed_sequences(
    setting: Setting, undisturbed: Ran, mesh: str
) -> None:
    ranks, changes = MESHES[mesh]
    ran = setting.run(*FLEX, *changes, name=fresh("grouped"), ranks=ranks)
    assert set(ran.codes) == {0}, ran.said
    assert ran.losses == pytest.approx(undisturbed.losses, rel=CLOSE, abs=0)
    norms = [record["norm"] for record in undisturbed.metrics]
    assert [record["norm"] for record in ran.metrics] == pytest.approx(norms, rel=CLOSE, abs=0)
    assert "documents on groups of " in ran.said[0]
    lines = (ran.folder / "timing.jsonl").read_text().splitlines()
    timing = [json.loads(line) for line in lines]
    assert min(each["planning"] for each in timing) > 0
    assert min(each["plan_wait"] for each in timing) >= 0


def test_a_run_that_was_interrupted_goes_on_bit_for_bit_with_costs_of_a_profile(
    setting: Setting,
) -> None:
    path = setting.folder / "profile.json"
    path.write_text(json.dumps(profile()))
    flex = (*FLEX, f"data.profile={path}", "pipeline.devices=1")
    saved = ("checkpoint.every=1", "checkpoint.keep=9")
    whole = setting.run(*flex, *saved, name=fresh("grouped-whole"), ranks=2)
    assert whole.codes == (0, 0), whole.said
    folder = setting.folder / (name := fresh("grouped-resumed"))
    folder.mkdir()
    step = "step-00000003"
    shutil.copytree(whole.folder / "checkpoints" / step, folder / "checkpoints" / step)
    shutil.copy(whole.folder / "metrics.jsonl", folder)
    rest = setting.run(*flex, name=name, ranks=2)
    assert rest.codes == (0, 0), rest.said
    assert rest.records == whole.records


@pytest.mark.matrix
def test_an_evaluation_is_that_of_packed_sequences(setting: Setting) -> None:
    held = ("data.held_out=0.2", "evaluation.every=4", "evaluation.batches=2")
    one = ("pipeline.devices=1",)
    runs = [
        setting.run(*held, *one, *changes, name=fresh("evaluated"), ranks=ranks)
        for changes, ranks in (((), 1), (FLEX, 2))
    ]
    assert [set(ran.codes) for ran in runs] == [{0}] * 2, [ran.said for ran in runs]
    packed, grouped = (
        [record["evaluation"] for record in ran.metrics if "evaluation" in record] for ran in runs
    )
    assert len(packed) == 2
    assert grouped == pytest.approx(packed, rel=CLOSE, abs=0)


REFUSED = {
    "mesh.sequence=1": "mesh.sequence is 1",
    "mesh.ring=2": "mesh.sequence is 2 and mesh.ring 2, so that no ranks exchange",
    "batch.rows=2": "batch.rows is 2",
    'log.compare=["gpipe"]': "log.compare is",
    "pipeline.cut=[32]": r"pipeline.cut is \(32,\)",
    "data.rank_tokens=3": "data.rank_tokens is 3",
    "data.group_ranks=2": "data.group_ranks is 2, but data.groups is 'flexible'",
    "data.group_ranks=-1": "data.group_ranks is -1",
    "data.groups=adaptive": "data.groups is 'adaptive'",
    "data.policy=pack": "data.rank_tokens is 16 and data.policy is 'pack'",
}


@pytest.mark.parametrize("change", REFUSED)
def test_what_groups_leave_no_room_for_is_refused(setting: Setting, change: str) -> None:
    changes = (*FLEX, "data.rank_tokens=16", change)
    with pytest.raises(PenstockError, match=REFUSED[change]):
        load(str(setting.config), changes)


def test_a_schedule_that_offloads_is_refused_before_a_process_starts(setting: Setting) -> None:
    changes = ("pipeline.schedule=stp-offload", "batch.microbatches=8")
    ran = setting.run(*FLEX, *changes, name=fresh("offloads"), ranks=4)
    assert all(ran.codes), ran.said
    assert any("form groups, but stp-offload offloads" in cause for cause in ran.causes), ran.said
