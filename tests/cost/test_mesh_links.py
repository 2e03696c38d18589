from dataclasses import replace

from penstock.arch.mesh_shape import MeshShape
from penstock.cost.hardware import hardware
from penstock.cost.mesh_links import MeshLinks

H200 = hardware("h200")
NEAR, FAR = H200.link, H200.network


def links(devices: int, machine: int = 8, **sizes: int) -> MeshLinks:
    return MeshLinks(MeshShape(**sizes), devices, replace(H200, machine=machine))


def test_the_fastest_axes_stay_in_a_machine() -> None:
    found = links(4, tensor=4, sequence=2, replicas=2)
    assert (found.ranks, found.copies) == (64, 4)
    assert found.rate("tensor") == found.rate("ulysses") == NEAR
    assert found.rate("replica") == found.rate("replica", "ring", "ulysses") == FAR
    assert found.rate_between(0, 1) == FAR


def test_a_group_across_two_machines_is_as_slow_as_the_network() -> None:
    assert links(1, tensor=16).rate("tensor") == FAR
    assert links(1, tensor=3, replicas=3).rate("tensor") == FAR  # ranks 6, 7 and 8
    assert links(1, tensor=3, replicas=2).rate("tensor") == NEAR  # one machine is enough


def test_devices_of_one_machine_are_near_each_other() -> None:
    found = links(4, tensor=4)
    assert [found.rate_between(d, d + 1) for d in range(3)] == [NEAR, FAR, NEAR]
    assert found.rate_between(3, 2) == NEAR


def test_the_order_of_axes_decides() -> None:
    mesh = MeshShape(tensor=2, replicas=8, order=("tensor", "device", "sequence", "replica"))
    found = MeshLinks(mesh, 1, H200)
    assert (found.rate("replica"), found.rate("tensor")) == (NEAR, FAR)


def test_heads_are_exchanged_between_neighbours_and_rings_are_wider() -> None:
    found = links(1, sequence=16, ring=2)
    assert (found.rate("ulysses"), found.rate("ring")) == (NEAR, FAR)
