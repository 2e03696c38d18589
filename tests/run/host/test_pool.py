"""Room on the host: made ahead, given out without gaps, and found whole again."""

import random

import pytest
import torch

from penstock.run.host.pool import ALIGNMENT, SMALLEST, HostPool

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


def test_room_is_made_ahead_in_blocks_of_powers_of_two() -> None:
    pool = HostPool(CPU)
    pool.grow(5 * SMALLEST + 1)
    assert pool.bytes == 6 * SMALLEST
    pool.grow(SMALLEST)
    assert pool.bytes == 6 * SMALLEST
    assert pool.late == 0


def test_what_is_taken_does_not_overlap_and_comes_back_whole() -> None:
    pool, numbers = HostPool(CPU), random.Random(3)
    pool.grow(4 * SMALLEST)
    held: dict[int, list[object]] = {}
    for turn in range(300):
        if held and numbers.random() < 0.45:
            mark = numbers.choice([*held])
            runs = held.pop(mark)
            assert all((pool.bytes_at(run) == mark % 251).all() for run in runs)  # type: ignore[arg-type]
            pool.give_back(runs)  # type: ignore[arg-type]
        elif pool.held < 3 * SMALLEST:
            runs = pool.take(numbers.randrange(1, SMALLEST))
            for run in runs:
                pool.bytes_at(run).fill_(turn % 251)
            held[turn] = [*runs]
    for runs in held.values():
        pool.give_back(runs)  # type: ignore[arg-type]
    assert pool.held == pool.late == 0
    assert [run.length for run in pool.take(SMALLEST)] == [SMALLEST]


def test_no_gap_is_too_small_to_be_used() -> None:
    pool = HostPool(CPU)
    pool.grow(SMALLEST)
    quarters = [pool.take(SMALLEST // 4) for _ in range(4)]
    pool.give_back(quarters[0])
    pool.give_back(quarters[2])
    assert len(pool.take(SMALLEST // 2)) == 2
    assert pool.held == SMALLEST
    assert pool.late == 0


def test_what_the_plan_did_not_say_is_made_late_and_counted() -> None:
    pool = HostPool(CPU)
    pool.take(ALIGNMENT + 1)
    assert pool.held == pool.most == 2 * ALIGNMENT
    assert pool.late == SMALLEST


def test_a_reset_finds_everything_free() -> None:
    pool = HostPool(CPU)
    pool.grow(2 * SMALLEST)
    pool.take(SMALLEST + 1)
    pool.reset()
    assert pool.held == 0
    assert sum(run.length for run in pool.take(2 * SMALLEST)) == pool.bytes
