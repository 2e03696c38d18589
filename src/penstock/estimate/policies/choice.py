"""Which policy a run takes: the fastest that it can run and has room for, by simulation."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import PlanError
from penstock.estimate.reasons import GIBI


class PolicyPrice(NamedTuple):
    """What steps take under a policy, or why there are none."""

    policy: str
    seconds: float = 0.0
    """Of a step, the mean of some batches."""
    memory: int = 0
    """Bytes of the rank that holds most."""
    refusal: str = ""
    """Why it cannot be run; empty where it can."""
    words: str = ""
    """What else it says of how it runs."""


def within(price: PolicyPrice, room: int) -> PolicyPrice:
    """The same, refused where a rank has less room; 0 stands for any."""
    if price.refusal or not room or price.memory <= room:
        return price
    needs, has = map(byte_words, (price.memory, room))
    return price._replace(refusal=f"a rank would need {needs} and has {has}")


def byte_words(size: int) -> str:
    """Bytes in the unit that suits them.

    >>> byte_words(3 << 30), byte_words(7_360_512), byte_words(1)
    ('3.00 GiB', '7.02 MiB', '0.00 MiB')
    """
    return f"{size / GIBI:.2f} GiB" if size >= GIBI else f"{1024 * size / GIBI:.2f} MiB"


def fastest_policy(prices: Sequence[PolicyPrice]) -> PolicyPrice:
    """The policy to take; of equally fast ones the first."""
    able = [price for price in prices if not price.refusal]
    if not able:
        raise PlanError(
            "no policy can be run: " + "; ".join(f"{p.policy}: {p.refusal}" for p in prices),
            hint="take more devices, shorter sequences or another schedule, or allow more memory",
        )
    return min(able, key=lambda price: price.seconds)


def gain_words(prices: Sequence[PolicyPrice]) -> str:
    """What the choice is expected to gain against the first policy.

    >>> gain_words([PolicyPrice("pack", 3.0), PolicyPrice("chunk", 2.0)])
    'chunk: 2 s for a step by simulation, 1.50 times as fast as pack'
    """
    best, first = fastest_policy(prices), prices[0]
    told = f"{best.policy}: {best.seconds:.3g} s for a step by simulation"
    if best is first:
        return f"{told}, and no other policy is faster"
    if first.refusal:
        return f"{told}; {first.policy} cannot be run"
    return f"{told}, {first.seconds / best.seconds:.2f} times as fast as {first.policy}"


def price_lines(prices: Sequence[PolicyPrice]) -> list[str]:
    """Each policy in a line.

    >>> price_lines([PolicyPrice("pack", 3.0, 2 << 30), PolicyPrice("flex", refusal="no ranks")])
    ['pack: 3 s, 2.00 GiB on a rank', 'flex is not compared: no ranks']
    """
    return [
        f"{price.policy} is not compared: {price.refusal}"
        if price.refusal
        else f"{price.policy}: {price.seconds:.3g} s, {byte_words(price.memory)} on a rank"
        + (f", {price.words}" if price.words else "")
        for price in prices
    ]
