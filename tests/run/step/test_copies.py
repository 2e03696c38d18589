"""Ranks that hold the same weights hold the same bits after some steps of training."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product

import pytest
import torch

from loops import one_of
from penstock.arch.mesh_shape import COPY_AXES, MeshShape
from penstock.run.launch.worker_pool import Crew
from penstock.run.program.step_plan import StepPlan
from penstock.schedules import build
from run.cell_jobs import HeldWeights, trained_cell
from run.plans import SMALL, plan_of

pytestmark = pytest.mark.torch

NORMED = replace(SMALL, qk_norm=True, tied=True)
MESHES = {
    "exchange of heads": MeshShape(sequence=2, tensor=2),
    "ring": MeshShape(sequence=2, ring=2, tensor=2),
    "replicas": MeshShape(replicas=2, tensor=2),
    "replicas and ring": MeshShape(replicas=2, sequence=2, ring=2),
    "one key/value head for several": MeshShape(tensor=4),
}


def plan_for(mesh: MeshShape) -> StepPlan:
    plan = plan_of(build("interleaved", devices=1, microbatches=2), NORMED, torch.float32)
    return replace(plan, layout=replace(plan.layout, cell=mesh.cell))


def apart(found: list[HeldWeights], axes: tuple[str, ...]) -> Iterator[tuple[HeldWeights, ...]]:
    """Two ranks that differ on some axes alone."""
    for one, other in combinations(found, 2):
        differ = {axis for axis, at in one.place.items() if at != other.place[axis]}
        if differ <= set(axes):
            yield one, other


def is_norm(name: str) -> bool:
    return name.endswith("norm.weight")


@pytest.mark.parametrize(
    ("mesh", "norms", "shard"),
    one_of(3, product(MESHES, ("scattered", "replicated"), ("none", "optimizer"))),
)
def test_copies_of_weights_stay_the_same_bits(
    ranks: Crew, mesh: str, norms: str, shard: str
) -> None:
    """All weights along replicas and ranks that share tokens; norms along tensor ranks too."""
    chosen = replace(MESHES[mesh], norms=norms)
    found = ranks.run(trained_cell, plan_for(chosen), chosen, shard)
    for one, other in apart(found, COPY_AXES):
        assert one.values.keys() == other.values.keys()
        assert [n for n, value in one.values.items() if not value.equal(other.values[n])] == []
    whole = [
        (one.values[name], other.values[name])
        for one, other in apart(found, (*COPY_AXES, "tensor"))
        for name in filter(is_norm, one.values)
    ]
    assert whole
    assert all(one.equal(other) for one, other in whole)


def test_ranks_with_different_matrices_have_different_values(ranks: Crew) -> None:
    """What is compared above is not the same everywhere."""
    mesh = MESHES["exchange of heads"]
    found = ranks.run(trained_cell, plan_for(mesh), mesh, "none")
    one, other = next(apart(found, ("tensor",)))
    same = [n for n, value in one.values.items() if value.equal(other.values[n])]
    assert same == [*filter(is_norm, one.values)]


def test_key_value_heads_that_several_ranks_hold_stay_the_same_bits(ranks: Crew) -> None:
    """Four tensor ranks, two key/value heads: ranks 0 and 1 hold one, 2 and 3 the other."""
    mesh = MESHES["one key/value head for several"]
    found = ranks.run(trained_cell, plan_for(mesh), mesh, "none")
    for name in (n for n in found[0].values if n.endswith(("k_proj.weight", "v_proj.weight"))):
        first, second, third, fourth = (rank.values[name] for rank in found)
        assert first.equal(second)
        assert third.equal(fourth)
        assert not first.equal(third)
