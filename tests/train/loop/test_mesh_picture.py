"""The ranks of a run over its machines, as they are drawn before the first step."""

import re
from pathlib import Path

import pytest

from loops import each
from penstock.run.comm.grid import Grid, spelled_out
from penstock.train.config.load import loads
from penstock.train.loop.mesh_picture import MOST_LINES, mesh_picture
from train.samples import SHORT

pytestmark = pytest.mark.torch

PAGE = Path(__file__).parents[3] / "docs/howto/train.md"


def test_replicas_of_two_devices_of_two_tensor_ranks_fill_two_machines() -> None:
    assert mesh_picture(Grid(replica=2, device=2, tensor=2), 4) == [
        "mesh        replica 2 x device 2 x tensor 2",
        "  machine 0   replica 0   device 0: [0 1]   device 1: [2 3]",
        "  machine 1   replica 1   device 0: [4 5]   device 1: [6 7]",
    ]


def test_a_pipeline_over_machines_has_its_devices_one_after_the_other() -> None:
    assert mesh_picture(Grid(device=4), 2) == [
        "mesh        device 4",
        "  machine 0   device 0: [0]   device 1: [1]",
        "  machine 1   device 2: [2]   device 3: [3]",
    ]


def test_replicas_of_one_machine_are_below_each_other() -> None:
    assert mesh_picture(Grid(replica=2, device=2), 4) == [
        "mesh        replica 2 x device 2",
        "  machine 0   replica 0   device 0: [0]   device 1: [1]",
        "              replica 1   device 0: [2]   device 1: [3]",
    ]


def test_sequence_ranks_of_a_cell_are_told_apart_and_numbers_stand_below_each_other() -> None:
    assert mesh_picture(Grid(device=4, ulysses=2, tensor=2), 8) == [
        "mesh        device 4 x ulysses 2 x tensor 2",
        "  machine 0   device 0: [ 0  1 |  2  3]   device 1: [ 4  5 |  6  7]",
        "  machine 1   device 2: [ 8  9 | 10 11]   device 3: [12 13 | 14 15]",
    ]


@each("grid", [Grid(), Grid(device=8), Grid(replica=8), Grid(tensor=8)])
def test_one_axis_on_one_machine_needs_no_picture(grid: Grid) -> None:
    assert mesh_picture(grid, grid.ranks) == []


def test_an_order_that_tears_tensor_ranks_apart_is_warned_of() -> None:
    grid = Grid(
        replica=2,
        device=2,
        tensor=2,
        order=spelled_out(("tensor", "replica", "device", "sequence")),
    )
    assert mesh_picture(grid, 4) == [
        "mesh        tensor 2 x replica 2 x device 2",
        "  machine 0   replica 0   device 0: [0 -]   device 1: [1 -]",
        "              replica 1   device 0: [2 -]   device 1: [3 -]",
        "  machine 1   replica 0   device 0: [- 4]   device 1: [- 5]",
        "              replica 1   device 0: [- 6]   device 1: [- 7]",
        "warning: tensor ranks 0 and 4 of device 0 of replica 0 are on different machines, the "
        "first of 4 such cells: see mesh.order",
    ]
    assert (
        mesh_picture(grid, 8)[-1] == "              replica 1   device 0: [2 6]   device 1: [3 7]"
    )


def test_cells_that_do_not_fill_a_machine_are_warned_of() -> None:
    assert mesh_picture(Grid(device=2, tensor=3), 4) == [
        "mesh        device 2 x tensor 3",
        "  machine 0   device 0: [0 1 2]   device 1: [3 - -]",
        "  machine 1   device 1: [- 4 5]",
        "warning: tensor ranks 3 and 4 of device 1 are on different machines: cells of 3 do not "
        "fill machines of 4",
    ]


def test_sequence_ranks_that_are_apart_are_warned_of_where_a_machine_has_room_for_a_cell() -> None:
    order = spelled_out(("sequence", "device", "replica", "tensor"))
    torn = Grid(device=2, ulysses=2, tensor=2, order=order)
    assert mesh_picture(torn, 4) == [
        "mesh        ulysses 2 x device 2 x tensor 2",
        "  machine 0   device 0: [0 1 | - -]   device 1: [2 3 | - -]",
        "  machine 1   device 0: [- - | 4 5]   device 1: [- - | 6 7]",
        "warning: sequence ranks 0 and 4 of device 0 are on different machines, the first of 2 "
        "such cells: see mesh.order",
    ]
    assert mesh_picture(Grid(ring=2, ulysses=2, tensor=2), 4) == [
        "mesh        ring 2 x ulysses 2 x tensor 2",
        "  machine 0   device 0: [0 1 | 2 3 | - - | - -]",
        "  machine 1   device 0: [- - | - - | 4 5 | 6 7]",
    ]


def test_more_devices_than_fit_into_a_line_go_on_below() -> None:
    first, second = mesh_picture(Grid(device=12), 6)[1:3]
    assert first == (
        "  machine 0   device 0:  [ 0]   device 1:  [ 1]   device 2:  [ 2]   device 3:  [ 3]   "
        "device 4:  [ 4]   device 5:  [ 5]"
    )
    assert second.startswith("  machine 1   device 6:  [ 6]")
    folded = mesh_picture(Grid(device=8, tensor=2), 16)
    assert [line.count("device") for line in folded] == [1, 5, 3]
    assert folded[2].startswith("              device 5: [10 11]")


def test_a_long_picture_is_shortened_with_a_count() -> None:
    whole = mesh_picture(Grid(replica=MOST_LINES, device=2), 2)
    assert whole[-1] == "  machine 15   replica 15   device 0: [30]   device 1: [31]"
    longer = mesh_picture(Grid(replica=40, device=2), 2)
    assert len(longer) == 1 + MOST_LINES
    assert longer[-2:] == [
        "  machine 14   replica 14   device 0: [28]   device 1: [29]",
        "  and 25 more lines",
    ]


def test_the_page_about_training_shows_the_picture_of_its_configuration() -> None:
    text = PAGE.read_text()
    (section,) = re.findall(r"^```toml\n(\[mesh\]\n.*?)^```$", text, re.M | re.S)
    (picture,) = re.findall(r"^```text\n(mesh .*?)^```$", text, re.M | re.S)
    mesh = loads(SHORT + section).mesh.shape
    grid = Grid(
        mesh.replicas, 2, mesh.cell.ring, mesh.cell.ulysses, mesh.tensor, spelled_out(mesh.order)
    )
    assert mesh_picture(grid, 8) == picture.splitlines()
