"""Every layer belongs to exactly one stage, in order."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.arch.layer_split import split_layers
from penstock.errors import ShapeError


@given(st.integers(0, 40), st.integers(1, 20))
def test_every_layer_is_owned_once_and_stages_differ_by_one_at_most(
    layers: int, stages: int
) -> None:
    found = split_layers(layers, stages)
    assert list(chain(*found)) == list(range(layers))
    sizes = [len(own) for own in found]
    assert len(sizes) == stages
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_any_counts_are_taken_as_they_are(counts: list[int]) -> None:
    found = split_layers(sum(counts), len(counts), counts)
    assert list(map(len, found)) == counts
    assert list(chain(*found)) == list(range(sum(counts)))


@pytest.mark.parametrize("counts", [(2, 2), (1, 2, 2), (3, 2, -1), (1, 1, 1, 1)])
def test_counts_that_do_not_hold_the_model_are_refused_with_their_sum(
    counts: tuple[int, ...],
) -> None:
    with pytest.raises(ShapeError, match=rf"sum {sum(counts)}, {len(counts)} stages.* 4 layers"):
        split_layers(4, 3, counts)
