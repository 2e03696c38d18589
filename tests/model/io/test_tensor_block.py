"""Runs of elements as blocks of whole tensors: every element once, at its place."""

from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from penstock.arch.parameter_layout import ParameterPart
from penstock.model.io.tensor_block import (
    Region,
    TensorBlock,
    blocks_by_name,
    blocks_in,
    regions_of_run,
    whole_block,
)

pytestmark = pytest.mark.torch


@st.composite
def parts(draw: st.DrawFn) -> ParameterPart:
    """A part of a tensor of up to three axes, along any of them; it may be empty."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axis = draw(st.integers(0, len(shape) - 1))
    start = draw(st.integers(0, shape[axis]))
    end = draw(st.integers(start, shape[axis]))
    return ParameterPart(shape, axis, start, end, offset=draw(st.integers(0, 9)))


def numbered(part: ParameterPart) -> Tensor:
    """A whole tensor in which every element differs from every other."""
    return torch.arange(prod(part.shape)).view(part.shape)


@settings(deadline=None)
@given(parts(), st.data())
def test_the_regions_of_a_run_have_its_elements_once_and_in_their_order(
    part: ParameterPart, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, part.elements))
    stop = data.draw(st.integers(start, part.elements))
    whole = numbered(part)
    regions = regions_of_run(part, start, stop)
    found = [int(element) for region in regions for element in whole[region.ranges].flatten()]
    assert found == whole[part.index].flatten()[start:stop].tolist()
    assert all(region.elements for region in regions)
    assert len(regions) <= 2 * len(part.shape) - 1


@settings(deadline=None)
@given(parts(), st.integers(0, 20), st.integers(0, 200))
def test_a_buffer_that_begins_anywhere_gives_views_of_what_it_has(
    part: ParameterPart, first: int, length: int
) -> None:
    whole = numbered(part)
    layout = torch.full((400,), -1)  # other parameters lie before and behind this one
    layout[part.offset : part.stop] = whole[part.index].flatten()
    flat = layout[first : first + length].clone()
    blocks = blocks_in(part, flat, first)
    assert sum(block.tensor.numel() for block in blocks) == int((flat >= 0).sum())
    for block in blocks:
        assert block.shape == part.shape
        assert torch.equal(block.tensor, whole[block.region.ranges])
        block.tensor.fill_(-1)
    assert int((flat >= 0).sum()) == 0


@pytest.mark.parametrize(
    ("start", "stop", "regions"),
    [
        (3, 13, ["[0:1, 7:8]", "[1:3, 4:8]", "[3:4, 4:5]"]),
        (3, 12, ["[0:1, 7:8]", "[1:3, 4:8]"]),
        (4, 13, ["[1:3, 4:8]", "[3:4, 4:5]"]),
        (3, 5, ["[0:1, 7:8]", "[1:2, 4:5]"]),
        (5, 7, ["[1:2, 5:7]"]),
        (0, 16, ["[0:4, 4:8]"]),
        (9, 9, []),
    ],
)
def test_a_run_of_the_right_half_of_a_matrix_in_rows_and_pieces_of_rows(
    start: int, stop: int, regions: list[str]
) -> None:
    part = ParameterPart((4, 8), axis=1, start=4, end=8, offset=0)
    assert [str(region) for region in regions_of_run(part, start, stop)] == regions


def test_regions_that_touch_do_not_overlap() -> None:
    one, beside, across = Region((0, 0), (2, 4)), Region((2, 0), (2, 4)), Region((1, 3), (2, 2))
    assert not one.overlaps(beside)
    assert one.overlaps(across)
    assert across.overlaps(beside)
    assert Region((), ()).overlaps(Region((), ()))


def test_a_whole_tensor_stands_for_its_only_block_and_empty_blocks_are_left_out() -> None:
    tensor, scalar = torch.zeros(2, 3), torch.tensor(1)
    empty = TensorBlock(torch.zeros(0, 3), (2, 3), (2, 0))
    found = blocks_by_name(
        {"a": tensor, "b": scalar, "c": [empty], "d": [empty, whole_block(tensor)]}
    )
    assert found.keys() == {"a", "b", "d"}
    assert [block.region for block in found["a"]] == [Region((0, 0), (2, 3))]
    assert [block.region for block in found["b"]] == [Region((), ())]
    assert [block.region for block in found["d"]] == [Region((0, 0), (2, 3))]
