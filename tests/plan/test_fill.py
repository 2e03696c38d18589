from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import accumulate

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import PlanError, ShapeError
from penstock.plan import even, fastest, fastest_batch

Latency = Callable[[int, int], Fraction]


def paper(n: int, c: int) -> Fraction:
    """1 + 0.5 n + 0.05 n (2 c + n)."""
    return 1 + Fraction(n, 2) + Fraction(n * (2 * c + n), 20)


def pipeline_time(lengths: tuple[int, ...], stages: int, latency: Latency) -> Fraction:
    """Sum and (stages - 1) x the largest, straight from the definition."""
    starts = [end - n for n, end in zip(lengths, accumulate(lengths))]
    times = [Fraction(latency(n, c)) for n, c in zip(lengths, starts)]
    return sum(times, Fraction(0)) + (stages - 1) * max(times)


def compositions(length: int) -> Iterator[tuple[int, ...]]:
    """Every way to cut `length`."""
    if length == 0:
        yield ()
    for first in range(1, length + 1):
        yield from ((first, *rest) for rest in compositions(length - first))


@pytest.mark.parametrize(
    ("length", "stages", "lengths", "time"),
    [
        (12, 1, (12,), "14.2"),
        (12, 4, (4, 2, 2, 2, 1, 1), "30.6"),
        (12, 8, (2, 2, 1, 1, 1, 1, 1, 1, 1, 1), "41.75"),
        (16, 4, (5, 3, 2, 2, 2, 2), "41.8"),
    ],
)
def test_slices_are_those_of_the_worked_examples(
    length: int, stages: int, lengths: tuple[int, ...], time: str
) -> None:
    assert fastest(length, stages, paper) == (lengths, Fraction(time))
    assert pipeline_time(lengths, stages, paper) == Fraction(time)


def test_even_slices_are_slower() -> None:
    assert pipeline_time(even(12, 6), 4, paper) == Fraction("31.8")
    assert pipeline_time(even(12, 4), 4, paper) == Fraction("34.15")


@given(st.integers(1, 9), st.integers(1, 6), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_search_equals_brute_force(length: int, stages: int, random) -> None:
    table = {
        (n, c): Fraction(random.randint(0, 12), random.choice((1, 2, 3)))
        for n in range(1, length + 1)
        for c in range(length)
    }
    latency = lambda n, c: table[n, c]  # noqa: E731 - the table as a function
    for count in (None, *range(1, length + 1)):
        found = fastest(length, stages, latency, count=count)
        ways = [way for way in compositions(length) if count in (None, len(way))]
        assert found.time == min(pipeline_time(way, stages, latency) for way in ways)
        assert found.time == pipeline_time(found.lengths, stages, latency)
        assert found.lengths in ways


@pytest.mark.long
@given(st.integers(1, 10), st.integers(1, 8))
@example(16, 4)
@settings(deadline=None, max_examples=30)
def test_causal_slices_equal_brute_force_and_do_not_grow(length: int, stages: int) -> None:
    found = fastest(length, stages, paper)
    assert found.time == min(pipeline_time(way, stages, paper) for way in compositions(length))
    assert list(found.lengths) == sorted(found.lengths, reverse=True)


@given(st.integers(1, 3), st.integers(1, 8), st.integers(1, 4), st.integers(1, 6))
@settings(deadline=None)
def test_unit_and_minimum_are_kept(unit: int, steps: int, minimum: int, stages: int) -> None:
    length = unit * steps
    ways = [tuple(n * unit for n in way) for way in compositions(steps)]
    ways = [way for way in ways if min(way) >= minimum]
    if not ways:
        with pytest.raises(PlanError):
            fastest(length, stages, paper, unit=unit, minimum=minimum)
        return
    found = fastest(length, stages, paper, unit=unit, minimum=minimum)
    assert found.lengths in ways
    assert found.time == min(pipeline_time(way, stages, paper) for way in ways)


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_a_batch_is_cut_as_brute_force_cuts_it(
    batch: int, length: int, stages: int, random
) -> None:
    table = {
        (b, n, c): Fraction(random.randint(1, 20), 2)
        for b in range(1, batch + 1)
        for n in range(1, length + 1)
        for c in range(length)
    }
    found = fastest_batch(batch, length, stages, lambda b, n, c: table[b, n, c])
    assert found.time == min(
        _batch_time(parts, stages, table) for parts in _batch_ways(batch, length)
    )
    assert found.time == _batch_time(found.parts, stages, table)
    assert sum(size for size, _ in found.parts) == batch
    assert all(sum(lengths) == length for _, lengths in found.parts)


def _batch_ways(batch: int, length: int) -> Iterator[tuple]:
    if batch == 0:
        yield ()
    for size in range(1, batch + 1):
        for lengths in compositions(length):
            yield from (((size, lengths), *rest) for rest in _batch_ways(batch - size, length))


def _batch_time(parts: tuple, stages: int, table: dict) -> Fraction:
    times = [
        table[size, n, end - n]
        for size, lengths in parts
        for n, end in zip(lengths, accumulate(lengths))
    ]
    return sum(times, Fraction(0)) + (stages - 1) * max(times)


def test_one_sequence_is_a_batch_of_one() -> None:
    assert fastest_batch(1, 12, 4, lambda b, n, c: paper(n, c)) == (
        ((1, (4, 2, 2, 2, 1, 1)),),
        Fraction("30.6"),
    )


def test_large_and_small_searches_run_the_same_lines() -> None:
    """Above 141 positions the search is compiled; its answer is that of the coarser grid scaled."""
    coarse = fastest(12, 4, paper)
    fine = fastest(12 * 16, 4, lambda n, c: paper(n // 16, c // 16), unit=1, minimum=16)
    assert fine.time <= coarse.time
    counted = fastest(12 * 16, 4, lambda n, c: paper(n, c), unit=16, count=6)
    assert counted.time == fastest(12, 4, lambda n, c: paper(16 * n, 16 * c), count=6).time


@pytest.mark.parametrize(
    ("length", "unit", "count", "message"),
    [
        (0, 1, None, "length is 0"),
        (12, 5, None, "steps of 5"),
        (10**9, 1, None, "steps of 1"),
        (12, 1, 0, "0 slices"),
        (12, 1, 13, "13 slices"),
        (1024, 1, 500, "500 slices"),
    ],
)
def test_a_search_that_cannot_be_done_is_refused_at_once(
    length: int, unit: int, count: int | None, message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        fastest(length, 4, paper if length < 1000 else _never, unit=unit, count=count)


def _never(n: int, c: int) -> Fraction:
    raise AssertionError("the latency was asked for although the request is impossible")


@pytest.mark.parametrize("batch", [0, 10**9])
def test_a_batch_that_cannot_be_searched_is_refused_at_once(batch: int) -> None:
    with pytest.raises(ShapeError, match=f"batch of {batch}"):
        fastest_batch(batch, 4, 4, lambda b, n, c: _never(n, c))


def test_latencies_that_cannot_be_added_exactly_are_refused() -> None:
    with pytest.raises(ShapeError, match="too finely divided"):
        fastest(4, 4, lambda n, c: Fraction(1, 10**12 + n + 7 * c))
    with pytest.raises(ShapeError, match="negative"):
        fastest(4, 4, lambda n, c: Fraction(-1))
