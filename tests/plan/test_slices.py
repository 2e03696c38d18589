from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.arch.config import ModelConfig
from penstock.arch.presets import model
from penstock.errors import ShapeError
from penstock.plan import equal_flops, equal_flops_of_model, even, flops_shares
from penstock.schedules import build
from penstock.sim import simulate
from penstock.transform import weigh_slices


@pytest.mark.parametrize(
    ("layers", "hidden", "ffn", "heads", "head", "words", "length", "unit", "lengths"),
    [
        (24, 4096, 16384, 32, 128, 32000, 16384, 2, (4930, 4238, 3776, 3440)),
        (32, 2560, 10240, 32, 80, 50304, 32768, 1, (11944, 8268, 6731, 5825)),
        (32, 4096, 16384, 32, 128, 50304, 131072, 8, (55720, 30872, 24064, 20416)),
        (64, 6144, 24576, 64, 96, 50304, 65536, 8, (23424, 16624, 13640, 11848)),
    ],
)
def test_equal_flops_are_those_of_the_released_code(
    layers: int, hidden: int, ffn: int, heads: int, head: int, words: int,
    length: int, unit: int, lengths: tuple[int, ...],
) -> None:  # fmt: skip
    # It counts the embedding like the output layer, and three FLOPs of the softmax per pair.
    linear = layers * (8 * hidden * heads * head + 4 * hidden * ffn) + 4 * hidden * words
    attention = layers * (4 * head + 3) * heads
    assert equal_flops(length, 4, linear=linear, attention=attention, unit=unit) == lengths


@given(
    st.integers(1, 400), st.integers(1, 8), st.integers(0, 50), st.integers(0, 9), st.integers(1, 4)
)
def test_each_later_slice_is_the_longest_that_costs_at_most_its_share(
    length: int, count: int, linear: int, attention: int, unit: int
) -> None:
    try:
        lengths = equal_flops(length, count, linear=linear, attention=attention, unit=unit)
    except ShapeError:
        return
    assert sum(lengths) == length
    total = _cost(0, length, linear, attention)
    end = length
    for tokens in reversed(lengths[1:]):
        assert tokens % unit == 0
        assert _cost(end - tokens, end, linear, attention) * count <= total
        assert _cost(end - tokens - unit, end, linear, attention) * count > total
        end -= tokens


def _cost(start: int, end: int, linear: int, attention: int) -> Fraction:
    """One token at a time: a query at position i has i + 1/2 pairs."""
    return sum((linear + attention * (i + Fraction(1, 2)) for i in range(start, end)), Fraction(0))


def test_without_attention_equal_flops_are_even() -> None:
    assert equal_flops(1000, 8, linear=7, attention=0) == even(1000, 8)


def test_a_model_is_cut_by_its_own_flops() -> None:
    plain = ModelConfig(2, 8, 32, 2, 2, 4, 16, gated=False)
    linear = 2 * (2 * (4 * 8 * 8 + 2 * 8 * 32) + 8 * 16)
    assert equal_flops_of_model(plain, 600, 3) == equal_flops(
        600, 3, linear=linear, attention=2 * 4 * 8
    )
    lengths = equal_flops_of_model(model("llama3-8b"), 131072, 4, unit=128)
    assert lengths == (55296, 30976, 24192, 20608)


def test_even_slices_differ_by_one_unit_and_the_first_takes_the_rest() -> None:
    assert even(4096, 4) == (1024,) * 4
    assert even(4099, 4) == (1025, 1025, 1025, 1024)
    assert even(1100, 3, unit=128) == (384 + 76, 384, 256)
    with pytest.raises(ShapeError, match="one is below 1"):
        even(64, 3, unit=32)


@pytest.mark.parametrize(
    ("length", "count", "unit", "minimum", "message"),
    [
        (0, 1, 1, 1, "length is 0"),
        (8, 0, 1, 1, "count is 0"),
        (8, 2, 0, 1, "unit is 0"),
        (8, 9, 1, 1, "8 tokens cannot be cut into 9"),
        (64, 4, 16, 1, "one is below 1"),
        (64, 4, 1, 14, "one is below 14"),
    ],
)
def test_slices_that_cannot_be_cut_are_refused(
    length: int, count: int, unit: int, minimum: int, message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        equal_flops(length, count, linear=1, attention=1, unit=unit, minimum=minimum)


@pytest.mark.parametrize(("linear", "attention"), [(0, 0), (-1, 1), (1, -1)])
def test_costs_that_weigh_nothing_are_refused(linear: int, attention: int) -> None:
    with pytest.raises(ShapeError, match="cannot be weighed"):
        equal_flops(8, 2, linear=linear, attention=attention)


@pytest.mark.parametrize("lengths", [(), (4, 0), (4, -1)])
def test_shares_of_nothing_are_refused(lengths: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="no cost to share"):
        flops_shares(lengths, linear=1, attention=1)


SIXTEEN = even(16, 4)


@pytest.mark.parametrize(
    ("lengths", "linear", "attention", "shares", "makespan"),
    [
        (SIXTEEN, 1, 0, (4, 4, 4, 4), Fraction(105, 4)),  # 26.25, as if attention were free
        (SIXTEEN, 0, 1, (1, 3, 5, 7), Fraction(699, 16)),  # 43.69, attention alone
        (SIXTEEN, 8, 1, (Fraction(5, 2), Fraction(7, 2), Fraction(9, 2), Fraction(11, 2)),
         Fraction(1119, 32)),  # 34.97, half and half
    ],
)  # fmt: skip
def test_even_slices_of_unequal_work_are_slower_than_none(
    lengths: tuple[int, ...], linear: int, attention: int, shares: tuple[int, ...],
    makespan: Fraction,
) -> None:  # fmt: skip
    found = flops_shares(lengths, linear=linear, attention=attention)
    assert found == tuple(Fraction(share, 16) for share in shares)
    sliced = build("seq1f1b", devices=4, microbatches=8, slices=4)
    assert simulate(weigh_slices(sliced, [found] * 8)).makespan == makespan
    whole = build("seq1f1b", devices=4, microbatches=8, slices=1)
    assert simulate(whole).makespan == 33


def test_slices_of_equal_flops_are_nearly_as_fast_as_equal_slices() -> None:
    lengths = equal_flops(16384, 4, linear=0, attention=1)
    shares = flops_shares(lengths, linear=0, attention=1)
    assert lengths == (8194, 3392, 2603, 2195)
    sliced = build("seq1f1b", devices=4, microbatches=8, slices=4)
    makespan = simulate(weigh_slices(sliced, [shares] * 8)).makespan
    assert Fraction(105, 4) < makespan < Fraction(105, 4) * Fraction(1001, 1000)
