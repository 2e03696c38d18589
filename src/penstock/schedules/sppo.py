"""SPPO: one very long sequence, whose slices leave for the host as fast as they can be copied.

A sequence of millions of tokens is alone in its batch. Cut into slices it fills a pipeline, but all
its activations are alive when the first backward starts. While a slice goes forward the one before
it is copied to the host, and while a slice goes back the next one is copied in. A copy that takes
longer than a forward would fall behind further with every slice; so only the share of a slice is
moved that fits. Keys and values, which every later slice reads, never leave.

    sppo: p = 2, m = 1, k = 3
    device 0  F0 F0.1 F0.2 B0.2 B0.1 B0
    device 1  F0 F0.1 F0.2 B0.2 B0.1 B0

    sppo-msp: p = 2, m = 1, k = 3
    device 0  F0 F0.1 F0.2 f0.2 b0.2 B0.2 B0.1 B0
    device 1  F0 f0 f0.1 f0.2 b0.2 b0.1 b0 B0

The multiplexed partition (`sppo-msp`) fills what bubble is left: slices next to it are computed by
several devices together, each of them a part.

Needs: one stage per device; ratios from 0 to 1, one or one per slice; mk >= p for the partition.
Claims: makespan (m + (p - 1)/k)(F + B) where copies hide; peak two slices and what the ratios leave
of all before.
Partition: makespan at most that of steps that end together, peak m. Source: arXiv:2503.10377.
Where we differ: ratios follow from the times of O and L. The paper does not say how a device gets
the weights of a stage that it helps; here it needs none, because it helps with attention alone. The
simulator divides the whole op evenly, as the paper does.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from penstock.core.numbers import read_number
from penstock.core.ops import Op
from penstock.core.schedule import After, Draft
from penstock.core.shape import Shape
from penstock.schedules._claims import flush_makespan, live_peak
from penstock.schedules._registry import Case, Claim, Need, Option, schedule
from penstock.schedules.generators.gangs import ganged_lanes, helped_time
from penstock.schedules.generators.streams import Unit, forward_units

PAPER = "arXiv:2503.10377"


@lru_cache(maxsize=64)
def read_ratios(text: str) -> tuple[Fraction, ...]:
    """Ratios written as 1/2,2/3,1."""
    return tuple(map(read_number, text.split(",")))


def _write(text: str) -> str:
    return ",".join(map(str, read_ratios(text)))


def _hidden(c: Case) -> str:
    """The share that is copied out in the time of a forward, and in in that of a backward."""
    fits = [time / copy for time, copy in ((c.F, c.price("O")), (c.B, c.price("L"))) if copy]
    return str(min([Fraction(1), *fits]))


def _ratio(ratios: tuple[Fraction, ...], unit: Unit) -> Fraction:
    return ratios[unit[1] if len(ratios) > 1 else 0]


def _fitting(c: Case) -> bool:
    ratios = read_ratios(c[RATIOS])
    return len(ratios) in (1, c.k) and all(0 <= ratio <= 1 for ratio in ratios)


def _hides(c: Case) -> bool:
    """Whether a copy out takes no longer than a forward, and one back no longer than a backward."""
    most = max(read_ratios(c[RATIOS]))
    return most * c.price("O") <= c.F and most * c.price("L") <= c.B


def _peak(c: Case) -> tuple[Fraction, ...]:
    """Two slices, and what is left of all slices before these two."""
    ratios = read_ratios(c[RATIOS])
    units = [(mb, s) for mb in range(c.m) for s in range(c.k)]
    left = sum((1 - _ratio(ratios, unit) for unit in units[:-2]), Fraction(min(len(units), 2)))
    return (left * c.act / c.k,) * c.p


RATIOS = Option(
    "ratios",
    _write,
    default=_hidden,
    text="the share of a slice's activation that is offloaded, as 1/2, or one for each "
    "slice, as 1/2,2/3,1,0; if left out, what is copied in the time of a forward and "
    "back in that of a backward (`--times O=,L=`)",
    least=None,
)


@schedule(
    name="sppo",
    title="slices that are offloaded as far as copies can be hidden",
    paper=PAPER,
    sliced=True,
    options=(RATIOS,),
    needs=(
        Need(
            _fitting,
            "ratios are from 0 to 1, and there is one, or one for each of the k slices",
            "give -o ratios={ratios} one or {k} numbers, of which none is above 1",
        ),
    ),
    claims=(
        Claim(
            "makespan",
            "(m + (p - 1)/k)(F + B) where copies hide",
            flush_makespan,
            f"{PAPER}, section 3",
            when=_hides,
        ),
        Claim(
            "peak",
            "(2 + sum of 1 - ratio over all slices but the last two)/k",
            _peak,
            f"derived from {PAPER}, section 5",
        ),
    ),
    cases=(
        Case(2, 1, k=4, options={"ratios": "1/2"}),
        Case(4, 1, k=8),
        Case(4, 1, k=4, options={"ratios": "1/2,2/3,1,0"}),
        Case(2, 2, k=3, options={"ratios": "1/4"}),
        Case(3, 1, k=5, options={"ratios": "0"}),
        Case(1, 1, k=1),
    ),
)
def sppo(shape: Shape, ratios: str) -> Draft:
    """The whole batch forward, and back the way it came; copies keep one slice behind or ahead."""
    units, shares = forward_units(shape), read_ratios(ratios)
    stages = range(shape.devices)
    moved = {unit: share for unit in units[:-1] if (share := _ratio(shares, unit))}
    return Draft(
        [[(kind, r, *unit) for kind, unit in _passes(units)] for r in stages],
        copy=[_copies(r, moved) for r in stages] if moved else (),
        after=tuple(note for r in stages for note in _turns(r, units, moved)),
        shares=tuple(
            (op, moved[op.mb, op.slice])
            for r in stages
            for op in _copies(r, moved)
            if moved[op.mb, op.slice] != 1
        ),
    )


def _passes(units: list[Unit]) -> list[tuple[str, Unit]]:
    return [*(("F", unit) for unit in units), *(("B", unit) for unit in reversed(units))]


def _copies(stage: int, moved: dict[Unit, Fraction]) -> list[Op]:
    out = [Op("O", stage, *unit) for unit in moved]
    return [*out, *(Op("L", stage, *unit) for unit in reversed(moved))]


def _turns(stage: int, units: list[Unit], moved: dict[Unit, Fraction]) -> Iterator[After]:
    """A copy has the time of one op: the op behind that waits for it, or it waits for the one
    before."""
    ops = [Op(kind, stage, *unit) for kind, unit in _passes(units)]
    for number, unit in enumerate(units):
        if unit in moved:
            yield After(ops[number + 2], Op("O", stage, *unit))
            yield After(Op("L", stage, *unit), ops[-number - 3])


def _barriers(c: Case) -> Fraction:
    return helped_time(c.p, c.m * c.k) * c.step / c.k


@schedule(
    name="sppo-msp",
    title="slices next to bubbles computed by several devices together",
    paper=PAPER,
    sliced=True,
    needs=(Need(lambda c: c.m * c.k >= c.p, "mk >= p", "raise -k so that -m {m} times k is {p}"),),
    claims=(
        Claim(
            "makespan",
            "(mk - p + 1 + 2 sum over steps t < p - 1 and stages i <= t of 1/(p - i))(F + B)/k",
            _barriers,
            f"derived from {PAPER}, section 6",
            bound=True,
        ),
        Claim("peak", "m", lambda c: live_peak(c, live=lambda r: c.m * c.k), PAPER),
    ),
    cases=(
        Case(4, 1, k=8),
        Case(2, 1, k=4),
        Case(4, 2, k=2),
        Case(3, 1, k=3),
        Case(5, 2, k=4),
        Case(1, 1, k=2),
    ),
)
def sppo_msp(shape: Shape) -> Draft:
    """Everything in steps, and within a step stage by stage on all devices that take part."""
    return ganged_lanes(shape.devices, forward_units(shape))
