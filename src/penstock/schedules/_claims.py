"""Closed forms that several papers share, so that each is written once.

Time counts one device's work on one microbatch; memory counts one microbatch on one device.
"""

from collections.abc import Callable
from fractions import Fraction

from penstock.schedules._registry import Case

PerDevice = Callable[[int], int]
"""A count that depends on the device."""


def flush_makespan(case: Case) -> Fraction:
    """Every device does all its work and idles for p - 1 units: (m + (p - 1)/(vk))(F + B)."""
    return (case.m + Fraction(case.p - 1, case.v * case.k)) * case.step


def flush_bubble(case: Case) -> Fraction:
    """The idle share of `flush_makespan`."""
    return Fraction(case.p - 1, case.m * case.v * case.k + case.p - 1)


def live_peak(case: Case, live: PerDevice) -> tuple[Fraction, ...]:
    """Peaks of devices with `live` units in flight, as far as there are that many."""
    units = case.v * case.k
    each = case.act / units
    return tuple(min(live(r), case.m * units) * each for r in range(case.p))


def split_peak(case: Case, *, live: PerDevice, delay: PerDevice) -> tuple[Fraction, ...]:
    """`live_peak` plus the stashes of the `delay` units that wait for their weight gradient."""
    units = case.v * case.k
    total = case.m * units
    held = [min(live(r), total) for r in range(case.p)]
    waiting = [min(delay(r), total - held[r]) for r in range(case.p)]
    return tuple((a * case.act + w * case.stash) / units for a, w in zip(held, waiting))


def weights_fit(case: Case) -> bool:
    """W is no longer than F and I, so that it fits where one of them would have idled."""
    return case.F >= case.W and case.I >= case.W
