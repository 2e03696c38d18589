"""Which part of each parameter a rank holds, and where it lies."""

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.arch.config import ModelConfig
from penstock.arch.layers.parameter import INPUTS, OUTPUTS, Parameter
from penstock.arch.parameter_layout import ParameterPart, lay_out
from penstock.arch.parameters import model_parameters, shapes_of, stage_parameters
from penstock.arch.presets import model
from penstock.errors import ShapeError

TINY = model("tiny")
MOST_RANKS = 5


@st.composite
def parameters(draw: st.DrawFn) -> dict[str, Parameter]:
    """Some parameters of one or two axes, shared along any of them."""
    found = {}
    for number in range(draw(st.integers(1, 4))):
        shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=2))
        axis = draw(st.none() | st.integers(0, len(shape) - 1))
        if axis is not None:
            shape[axis] += MOST_RANKS
        name = f"p{number}"
        found[name] = Parameter(name, tuple(shape), axis=axis)
    return found


@settings(deadline=None)
@given(parameters(), st.integers(1, MOST_RANKS))
def test_the_parts_of_all_ranks_tile_each_parameter_exactly(
    given_parameters: dict[str, Parameter], ranks: int
) -> None:
    layouts = [lay_out(given_parameters, rank, ranks) for rank in range(ranks)]
    for name, parameter in given_parameters.items():
        held = np.zeros(parameter.shape, int)
        for layout in layouts:
            held[layout.parts[name].index] += 1
        assert (held == (1 if parameter.axis is not None else ranks)).all()


@settings(deadline=None)
@given(parameters(), st.integers(1, MOST_RANKS))
def test_the_parts_of_a_rank_fill_its_buffer_one_behind_the_other(
    given_parameters: dict[str, Parameter], ranks: int
) -> None:
    for rank in range(ranks):
        layout = lay_out(given_parameters, rank, ranks)
        parts = list(layout.parts.values())
        assert [part.offset for part in parts] == [0, *(part.stop for part in parts[:-1])]
        assert layout.elements == parts[-1].stop
        for part, parameter in zip(parts, given_parameters.values()):
            whole = np.zeros(parameter.shape)
            assert whole[part.index].shape == part.local_shape


def test_one_rank_holds_everything() -> None:
    layout = lay_out(stage_parameters(TINY, range(4), 0, 1))
    assert all(part.is_whole for part in layout.parts.values())
    assert layout.elements == TINY.parameters
    assert {name: part.local_shape for name, part in layout.parts.items()} == shapes_of(
        model_parameters(TINY)
    )


def test_a_part_knows_which_slice_of_the_whole_tensor_it_is() -> None:
    part = ParameterPart((6, 10), INPUTS, 4, 8, offset=7)
    assert part.index == (slice(0, 6), slice(4, 8))
    assert (part.local_shape, part.elements, part.stop) == ((6, 4), 24, 31)
    assert not part.is_whole


def test_query_heads_go_with_their_key_head_whatever_the_number_of_ranks() -> None:
    config = ModelConfig(1, 24, 40, 6, 3, 4, 7, qkv_bias=True, qk_norm=True)
    shared = stage_parameters(config, range(1), 0, 1)
    for ranks in range(1, 7):
        for rank in range(ranks):
            parts = lay_out(shared, rank, ranks).parts
            q, k, v, back = (
                parts[f"model.layers.0.self_attn.{x}_proj.weight"] for x in ("q", "k", "v", "o")
            )
            assert (q.start, q.end) == (back.start, back.end)
            assert 2 * k.start <= q.start < q.end <= 2 * k.end
            assert (q.end - q.start) % (k.end - k.start) == 0
            assert (k.start, k.end, k.holders) == (v.start, v.end, v.holders)
            assert k.start % 4 == k.end % 4 == q.start % 4 == q.end % 4 == 0
            same = [lay_out(shared, other, ranks).parts for other in k.holders]
            keys = "model.layers.0.self_attn.k_proj.weight"
            assert {(at[keys].start, at[keys].end) for at in same} == {(k.start, k.end)}
            assert len(k.holders) == 1 or ranks > 3


def test_more_ranks_than_heads_are_refused() -> None:
    shared = stage_parameters(TINY, range(1), 0, 1)
    with pytest.raises(ShapeError, match="5 ranks cannot share 4 heads of 2 key/value heads") as no:
        lay_out(shared, 2, 5)
    assert no.value.hint.startswith("take at most 4 ranks")


def test_a_matrix_inwards_and_the_one_back_share_what_is_between_them() -> None:
    shared = stage_parameters(TINY, range(1), 0, 2)
    for rank in range(3):
        parts = lay_out(shared, rank, 3).parts
        up, down = (parts[f"model.layers.0.mlp.{x}_proj.weight"] for x in ("up", "down"))
        assert (up.axis, down.axis) == (OUTPUTS, INPUTS)
        assert (up.start, up.end) == (down.start, down.end)


def test_norms_are_on_every_rank() -> None:
    norms = {n: p for n, p in model_parameters(TINY).items() if n.endswith("norm.weight")}
    assert len(norms) == 2 * TINY.layers + 1
    for rank in range(3):
        parts = lay_out(norms, rank, 3).parts.values()
        assert sum(part.elements for part in parts) == sum(prod(p.shape) for p in norms.values())


def test_more_ranks_than_elements_are_refused() -> None:
    with pytest.raises(ShapeError, match="3 ranks cannot share w, which has 2 elements") as error:
        lay_out({"w": Parameter("w", (2, 10), axis=OUTPUTS)}, 0, 3)
    assert error.value.hint == "take at most 2 ranks"


def test_a_rank_outside_the_group_is_refused() -> None:
    with pytest.raises(ShapeError, match="rank 2 is none of the 2"):
        lay_out({}, index=2, of=2)


def _shared() -> dict[str, Parameter]:
    sizes = {"embedding": (5, 4), "norm": (4,), "head": (5, 4)}
    return {name: Parameter(name, size) for name, size in sizes.items()}


def test_what_shares_values_has_a_gradient_of_its_own_and_no_place_for_values() -> None:
    plain = lay_out(_shared())
    layout = plain.sharing({"head": "embedding"})
    assert (layout.elements, layout.stored, plain.stored) == (44, 24, 44)
    assert [*layout.distinct] == ["embedding", "norm"]
    assert layout.parts_in(44) == plain.parts
    assert layout.parts_in(24)["head"] == plain.parts["embedding"]
    assert layout.parts_in(24)["norm"] == plain.parts["norm"]


def test_only_the_last_parameters_can_share_values() -> None:
    with pytest.raises(ShapeError, match="norm cannot share values: they are not the last"):
        lay_out(_shared()).sharing({"norm": "embedding"})
