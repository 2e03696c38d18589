"""Formulas of arXiv:2406.03488 about time and memory, as an estimate has them."""

from typing import NamedTuple

import pytest

from estimate.equal_stages import FreeStep

TOKENS = 32768


class Held(NamedTuple):
    """What a device holds at once."""

    tokens: int
    sequences: int
    """Of which at least one slice is there."""


def _held(lengths: tuple[int, ...], p: int, m: int, device: int) -> list[Held]:
    """After each forward: p - 1 - r + k - 1 of them first, then a backward for each; forwards take
    slices in order, backwards in reverse order, sequence by sequence."""
    k = len(lengths)
    forward = [(i, s) for i in range(m) for s in range(k)]
    backward = [(i, s) for i in range(m) for s in reversed(range(k))]
    first, found = min(p - 1 - device + k - 1, m * k), []
    for done in range(1, m * k + 1):
        live = {*forward[:done]} - {*backward[: max(0, done - 1 - first)]}
        found.append(Held(sum(lengths[s] for _, s in live), len({i for i, _ in live})))
    return found


def _sliced(p: int, m: int, k: int, schedule: str = "seq1f1b", **changes: object) -> FreeStep:
    sizes = {"tokens": TOKENS, "batch_tokens": TOKENS * m, "schedule": schedule, "slices": k}
    return FreeStep.of(p, m, **(sizes | changes))


@pytest.mark.parametrize(("p", "m", "k"), [(4, 8, 4), (4, 4, 2), (2, 4, 8), (4, 1, 4)])
def test_a_step_takes_m_and_the_bubble_of_a_slice(p: int, m: int, k: int) -> None:
    """m(f + b) + (p - 1)(f + b)/k where slices take equal time: sequences are short here."""
    found = _sliced(p, m, k, tokens=4096, batch_tokens=4096 * m)
    assert found.seconds == pytest.approx((m + (p - 1) / k) * found.work("FB"), rel=0.06)


@pytest.mark.parametrize("tokens", [8192, 32768, 131072])
def test_slices_that_take_unequal_time_take_longer(tokens: int) -> None:
    """Slices have equal FLOPs, and attention reaches less of the peak than products do, so the last
    ones take longer. No step is faster than the formula, nor slower than with slices that all take
    as long as the slowest."""
    p, m, k = 4, 8, 4
    found = _sliced(p, m, k, tokens=tokens, batch_tokens=tokens * m)
    each = [found.work("FB", slice) for slice in range(k)]
    count = m + (p - 1) / k
    assert 0.998 * count * sum(each) < found.seconds < 1.002 * count * k * max(each)


@pytest.mark.parametrize(("p", "m", "k", "v"), [(4, 8, 2, 2), (4, 8, 4, 2)])
def test_an_interleaved_step_has_the_bubble_of_a_slice_of_a_stage(
    p: int, m: int, k: int, v: int
) -> None:
    """m(f + b) + (p - 1)(f + b)/(k v)."""
    found = _sliced(p, m, k, "seq1f1b-i", chunks=v, tokens=4096, batch_tokens=4096 * m)
    assert found.seconds == pytest.approx((m + (p - 1) / (k * v)) * found.work("FB"), rel=0.06)


@pytest.mark.parametrize(("p", "m", "k"), [(4, 8, 4), (4, 4, 2), (2, 4, 8), (4, 1, 4)])
def test_a_device_holds_the_tokens_of_its_slices(p: int, m: int, k: int) -> None:
    """p - 1 - r + k slices, of which tokens count and not the number: the first are longer. Keys
    and values are there of every sequence with a slice, and gradients of them of one sequence, up
    to its last slice."""
    found = _sliced(p, m, k)
    lengths, model = found.step.lengths, found.layout.model
    layers = 32 // p
    assert sum(lengths) == TOKENS
    for device, memory in enumerate(found.memory[:-1]):
        moments = _held(lengths, p, m, device)
        most = max(moments, key=lambda held: held.tokens * model.saved_bytes)
        assert memory.activations == layers * model.saved_bytes * most.tokens
        keys = most.sequences * TOKENS + TOKENS - lengths[-1]
        assert memory.keys_values == layers * model.kv_bytes * keys


def test_slices_hold_a_kth_and_a_pth_of_what_1f1b_holds() -> None:
    """(k + p - 1)/(k p) of it on the first device, where slices have equal tokens: all the more
    where they have equal FLOPs, since the first ones are longer."""
    p, m, k = 4, 8, 8
    plain = FreeStep.of(p, m, tokens=TOKENS, batch_tokens=TOKENS * m).memory[0].activations
    share = _sliced(p, m, k).memory[0].activations / plain
    assert (k + p - 1) / (k * p) < share < 1.4 * (k + p - 1) / (k * p)
