"""Ranks stand on a grid with named axes, and every group has the members it says."""

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import RunError
from penstock.run.comm.grid import GRID_AXES, Grid
from penstock.run.comm.mesh import Mesh, make_mesh
from penstock.run.launch.worker_pool import Crew
from run.jobs import groups_of_two_meshes, place_in, refused_mesh

pytestmark = pytest.mark.torch

sizes = st.integers(1, 3)
grids = st.builds(Grid, sizes, sizes, sizes, sizes, sizes, st.permutations(GRID_AXES).map(tuple))


def test_a_rank_is_a_device_of_a_replica() -> None:
    meshes = [Mesh(Grid(replica=3, device=4), rank) for rank in range(12)]
    assert [(m.replica, m.device) for m in meshes] == [(r, d) for r in range(3) for d in range(4)]
    assert [m.ranks_of(m.replica)[m.device] for m in meshes] == list(range(12))


@settings(deadline=None)
@given(grids)
def test_every_rank_has_coordinates_of_its_own(grid: Grid) -> None:
    places = [grid.coordinates(rank) for rank in range(grid.ranks)]
    assert [grid.rank(place) for place in places] == list(range(grid.ranks))
    assert len({tuple(place.values()) for place in places}) == grid.ranks
    innermost = grid.order[-1]
    assert [p[innermost] for p in places[: grid.size(innermost)]] == [*range(grid.size(innermost))]


@settings(deadline=None)
@given(grids, st.sets(st.sampled_from(GRID_AXES), min_size=1))
def test_groups_part_the_ranks_and_differ_on_their_axes_alone(grid: Grid, axes: set[str]) -> None:
    groups = grid.groups(*axes)
    assert sorted(rank for ranks in groups for rank in ranks) == list(range(grid.ranks))
    for ranks in groups:
        assert len(ranks) == prod(grid.size(axis) for axis in axes)
        others = [{a: grid.coordinates(r)[a] for a in GRID_AXES if a not in axes} for r in ranks]
        assert all(other == others[0] for other in others)


def test_an_order_names_each_axis_once() -> None:
    with pytest.raises(RunError, match="the order of a mesh is device, device"):
        Grid(order=("device", "device"))


def test_a_process_by_itself_has_no_groups() -> None:
    mesh = make_mesh(1, 1)
    assert [mesh.pipeline, mesh.copies, mesh.world, mesh.among((0,))] == [None] * 4


def test_too_few_ranks_are_refused_with_the_number_needed() -> None:
    with pytest.raises(RunError, match=r"2 replica\(s\) x 3 device\(s\) need 6 ranks, but 1"):
        make_mesh(2, 3)


def test_another_number_of_ranks_is_refused_by_every_rank(ranks: Crew) -> None:
    found = ranks.run(refused_mesh, 2, 3)
    assert found == ["2 replica(s) x 3 device(s) need 6 ranks, but 4 were started"] * 4


def test_two_replicas_of_two_devices(ranks: Crew) -> None:
    found = ranks.run(place_in, 2, 2)
    everyone = [0, 1, 2, 3]
    assert [(each.replica, each.device) for each in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [each.members for each in found] == [
        [[0, 1], [0, 2], [0, 1], everyone],
        [[0, 1], [1, 3], [0, 1], everyone],
        [[2, 3], [0, 2], [2, 3], everyone],
        [[2, 3], [1, 3], [2, 3], everyone],
    ]


def test_another_mesh_of_the_same_ranks_has_the_same_groups(ranks: Crew) -> None:
    assert ranks.run(groups_of_two_meshes, 2, 2) == [(True, 0)] * 4


def test_only_some_devices_of_a_pipeline_have_a_group_among_them(ranks: Crew) -> None:
    ends = [each.members[2] for each in ranks.run(place_in, 1, 4)]
    assert ends == [[0, 3], None, None, [0, 3]]
