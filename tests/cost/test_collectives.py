"""Volumes of a layer are the closed forms of the papers, at all sizes that divide."""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import pytest

from penstock.arch.cell_shape import CellShape
from penstock.arch.config import ModelConfig
from penstock.arch.presets import model
from penstock.core.ops import Op
from penstock.cost.collectives import Collective, SliceCollectives
from penstock.cost.op_collectives import op_collectives
from penstock.cost.rank_share import RankShare
from penstock.cost.volumes import gathered_elements, reduced_in_layer
from penstock.cost.workload import Workload

TOKENS = 4096
GROUPED = model("llama3-8b")
ALL_HEADS = replace(GROUPED, kv_heads=GROUPED.heads)
HIDDEN = GROUPED.hidden


def slice_of(cell: CellShape, config: ModelConfig = GROUPED, *lengths: int) -> SliceCollectives:
    return SliceCollectives(RankShare(config, cell), lengths or (TOKENS,))


def elements(found: Iterable[Collective]) -> Fraction:
    """What a rank sends, in elements of 16 bits."""
    return sum((each.sent for each in found), Fraction(0)) / GROUPED.element_bytes


def both(slice: SliceCollectives) -> tuple[Fraction, Fraction]:
    """A layer forward, and back."""
    return elements(slice.layer_forward()), elements(slice.layer_backward("B"))


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_replicated_norms_reduce_8bsh_of_which_a_rank_keeps_its_own_part(tensor: int) -> None:
    """Two all-reduces forward and two back: arXiv:2104.04473, section 3.2."""
    slice = slice_of(CellShape(tensor=tensor, norms="replicated"))
    for layer in (slice.layer_forward(), slice.layer_backward("B")):
        assert [(each.name, each.axis) for each in layer] == [("add_up", "tensor")] * 2
    forward, back = both(slice)
    assert forward == back == 4 * gathered_elements(TOKENS, HIDDEN, tensor)
    assert forward + back == reduced_in_layer(TOKENS, HIDDEN, tensor)
    again = reduced_in_layer(TOKENS, HIDDEN, tensor, forwards=2)
    assert 2 * forward + back == again


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_scattered_norms_move_as_much_forward_and_gather_two_inputs_again(tensor: int) -> None:
    slice = slice_of(CellShape(tensor=tensor))
    names = [each.name for each in slice.layer_forward()]
    assert names == ["gather", "scatter_sum"] * 2
    names = [each.name for each in slice.layer_backward("B")]
    assert names == ["gather", "gather", "scatter_sum"] * 2
    forward, back = both(slice)
    assert forward == 4 * gathered_elements(TOKENS, HIDDEN, tensor)
    assert back == 6 * gathered_elements(TOKENS, HIDDEN, tensor)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_an_exchange_of_heads_sends_4nh_over_p_less_what_stays(ranks: int) -> None:
    """arXiv:2309.14509, section 3: queries, keys, values and output, each way."""
    stays = Fraction(ranks - 1, ranks)
    forward, back = both(slice_of(CellShape(ulysses=ranks), ALL_HEADS))
    assert forward == back == Fraction(4 * TOKENS * HIDDEN, ranks) * stays
    groups = Fraction(GROUPED.kv_heads, GROUPED.heads)
    forward, back = both(slice_of(CellShape(ulysses=ranks)))
    assert forward == back == (2 + 2 * groups) * Fraction(TOKENS * HIDDEN, ranks) * stays


def test_a_link_carries_the_same_when_tokens_and_ranks_grow_together() -> None:
    """arXiv:2309.14509: 4 N h / P, of which a rank keeps one part of P."""
    volumes = [
        elements(slice_of(CellShape(ulysses=ranks), ALL_HEADS, 1024 * ranks).layer_forward())
        * Fraction(ranks, ranks - 1)
        for ranks in (2, 4, 8)
    ]
    assert volumes == [4 * 1024 * HIDDEN] * 3


def test_keys_that_fewer_ranks_have_go_to_each_of_them() -> None:
    """Sixteen ranks share eight key/value heads: k and v count twice."""
    forward, back = both(slice_of(CellShape(ulysses=16)))
    stays, groups = Fraction(15, 16), Fraction(16, GROUPED.heads)
    queries_and_output = 2 * Fraction(TOKENS * HIDDEN, 16) * stays
    received = 2 * groups * Fraction(TOKENS * HIDDEN, 16) * stays
    assert forward == back == queries_and_output + received


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_ring_passes_keys_and_values_round_and_gradients_with_them(ranks: int) -> None:
    """2 N g d (R - 1)/R forward, and twice that back: arXiv:2310.01889."""
    forward, back = both(slice_of(CellShape(ring=ranks)))
    keys = GROUPED.kv_heads * GROUPED.head_size
    assert forward == Fraction(2 * TOKENS * keys * (ranks - 1), ranks)
    assert back == 2 * forward


def test_an_exchange_moves_its_own_slice_and_a_ring_all_slices_up_to_it() -> None:
    exchanged, ring = CellShape(ulysses=4), CellShape(ring=4)
    one, two = (512,), (512, 512)
    for cell, growth in ((exchanged, 1), (ring, 2)):
        first, second = (both(slice_of(cell, GROUPED, *lengths)) for lengths in (one, two))
        assert second == (growth * first[0], growth * first[1])


def test_with_tensor_ranks_a_rank_exchanges_its_own_heads_alone() -> None:
    alone = slice_of(CellShape(ulysses=4))
    together = slice_of(CellShape(tensor=2, ulysses=4))

    def of(slice: SliceCollectives) -> Fraction:
        return elements(each for each in slice.layer_forward() if each.axis == "ulysses")

    assert of(together) == of(alone) / 2


def sent_by(cell: CellShape, op: Op) -> list[Collective]:
    """What an op of two stages of sixteen layers sends."""
    workload = Workload(GROUPED, ((TOKENS,),), (16, 16))
    return op_collectives(workload, RankShare(GROUPED, cell), op)


def test_only_replicated_tokens_are_gathered_behind_a_boundary() -> None:
    inner = Op("F", 1, 0)
    scattered, replicated = (
        sent_by(CellShape(tensor=4, norms=norms), inner) for norms in ("scattered", "replicated")
    )
    assert {each.times for each in scattered} == {16}
    first = replicated[0]
    assert (first.name, first.times) == ("gather", 1)
    assert elements([first]) == gathered_elements(TOKENS, HIDDEN, 4)


def test_the_loss_adds_two_numbers_per_token_and_its_gradient() -> None:
    """A largest logit, then a sum of exponentials with the label's logit, each in 32 bits."""
    cell = CellShape(tensor=4, norms="replicated")
    largest, sums, gradient, *_ = sent_by(cell, Op("I", 1, 0))
    assert (largest.name, sums.name, gradient.name) == ("take_largest", "add_up", "add_up")
    assert sums.sent == 2 * largest.sent == 2 * 2 * Fraction(3, 4) * 4 * TOKENS
    assert elements([gradient]) == 2 * gathered_elements(TOKENS, HIDDEN, 4)


def test_weight_gradients_send_nothing() -> None:
    assert not sent_by(CellShape(2, 2, 2), Op("W", 1, 0))


def test_only_a_backward_with_weight_gradients_has_work_beside_its_sums() -> None:
    cell = CellShape(tensor=2)

    def beside(kind: str) -> list[int]:
        found = sent_by(cell, Op(kind, 1, 0))
        return [
            each.beside.linear for each in found if each.name == "scatter_sum" and each.times > 1
        ]

    part = RankShare(GROUPED, cell).part
    products = [2 * each.weights * TOKENS for each in part.layer_records if each.weights]
    assert beside("B") == products[::-1]
    assert beside("I") == [0, 0]
    assert sum(beside("B")) == TOKENS * part.layer_flops


def test_a_ring_computes_with_a_block_while_it_passes_it_on() -> None:
    slice = slice_of(CellShape(ring=4))
    forward, back = [*slice.layer_forward()], [*slice.layer_backward("I")]
    pairs = Fraction(TOKENS**2, 2) / 4 * GROUPED.pair_flops
    assert [each.beside.attention for each in forward] == [pairs / 4] * 3
    assert [each.beside.attention_backward for each in back] == [2 * pairs / 4] * 4 + [0]
    assert [each.calls for each in back] == [1, 1, 2, 1, 1]
