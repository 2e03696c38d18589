"""Whether blocks are a tensor, compared with counting its elements one by one."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import RunError
from penstock.model.io.tensor_block import Region, TensorBlock
from penstock.train.checkpoint.outline import Cover, cover, outlines_of

pytestmark = pytest.mark.torch


@st.composite
def regions_of_a_tensor(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Region]]:
    """Some regions of a tensor of up to three axes; one is empty now and then."""
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    found = []
    for _ in range(draw(st.integers(0, 5))):
        offsets = tuple(draw(st.integers(0, size)) for size in shape)
        sizes = tuple(draw(st.integers(0, size - at)) for at, size in zip(offsets, shape))
        found.append(Region(offsets, sizes))
    return shape, found


@settings(deadline=None)
@given(regions_of_a_tensor())
def test_elements_are_counted_once_and_the_first_that_lacks_is_found(
    given_regions: tuple[tuple[int, ...], list[Region]],
) -> None:
    shape, regions = given_regions
    there = np.zeros(shape, np.bool_)
    for region in regions:
        there[region.ranges] = True
    lacking = np.argwhere(~there)
    first = tuple(int(at) for at in lacking[0]) if len(lacking) else None
    assert cover((*regions,), shape) == Cover(int(there.sum()), first)


@pytest.mark.parametrize(
    ("offsets", "sizes"), [((0, 3), (2, 2)), ((-1, 0), (2, 2)), ((0,), (2, 2)), ((0, 0, 0), (2, 2))]
)
def test_a_block_that_is_not_within_its_tensor_is_refused(
    offsets: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    block = TensorBlock(torch.zeros(sizes), (4, 4), offsets)
    with pytest.raises(RunError, match=r"weights/a is \[4, 4\] of float32, but .* is not a block"):
        outlines_of({"weights/a": [block]})


def test_blocks_of_one_rank_that_are_of_two_tensors_are_refused() -> None:
    blocks = [TensorBlock(torch.zeros(2), (size,), (0,)) for size in (4, 6)]
    with pytest.raises(RunError, match=r"\[4\] of float32 in one block, but \[6\] of float32 in"):
        outlines_of({"weights/a": blocks})
