"""Ranks stand in replicas x devices, and every group has the members it says."""

import pytest

from penstock.errors import RunError
from penstock.run.comm.mesh import Mesh, make_mesh
from penstock.run.launch.worker_pool import Crew
from run.jobs import place_in, refused_mesh

pytestmark = pytest.mark.torch


def test_a_rank_is_a_device_of_a_replica() -> None:
    meshes = [Mesh(3, 4, rank) for rank in range(12)]
    assert [(m.replica, m.device) for m in meshes] == [(r, d) for r in range(3) for d in range(4)]
    assert [m.ranks_of(m.replica)[m.device] for m in meshes] == list(range(12))


def test_a_process_by_itself_has_no_groups() -> None:
    assert make_mesh(1, 1) == Mesh(1, 1, 0)


def test_too_few_ranks_are_refused_with_the_number_needed() -> None:
    with pytest.raises(RunError, match=r"2 replica\(s\) x 3 device\(s\) need 6 ranks, but 1"):
        make_mesh(2, 3)


def test_another_number_of_ranks_is_refused_by_every_rank(ranks: Crew) -> None:
    found = ranks.run(refused_mesh, 2, 3)
    assert found == ["2 replica(s) x 3 device(s) need 6 ranks, but 4 were started"] * 4


def test_two_replicas_of_two_devices(ranks: Crew) -> None:
    found = ranks.run(place_in, 2, 2, (0, 1))
    everyone = [0, 1, 2, 3]
    assert [(each.replica, each.device) for each in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [each.members for each in found] == [
        [[0, 1], [0, 2], [0, 1], everyone],
        [[0, 1], [1, 3], [0, 1], everyone],
        [[2, 3], [0, 2], [2, 3], everyone],
        [[2, 3], [1, 3], [2, 3], everyone],
    ]


def test_only_the_two_ends_of_a_pipeline_have_a_group_for_tied_weights(ranks: Crew) -> None:
    ends = [each.members[2] for each in ranks.run(place_in, 1, 4, (0, 3))]
    assert ends == [[0, 3], None, None, [0, 3]]


def test_ends_on_one_device_need_no_group(ranks: Crew) -> None:
    assert [each.members[2] for each in ranks.run(place_in, 1, 4, (0, 0))] == [None] * 4
