"""1F1B with the output layer on the last device, as it is and with its layers moved.

What the output layer costs the last device, all others wait for with every microbatch. The simple
cure is to give that device fewer of the other layers. This evens out time as far as whole layers
can, and makes memory uneven: the first devices, which hold the most microbatches, get more layers.

    1f1b-head: p = 2, m = 2
    device 0  F0 F1 B0 B1
    device 1  F0 B0 F1 B1

    1f1b-redis: p = 2, m = 2
    device 0  F0 F1 B0 B1
    device 1  F0 B0 F1 B1

Needs: one stage per device.
Claims: makespan (m - 1) times the slowest device and once around all of them; peak p - r
microbatches of the layers that a device has. F and B are the times of an average device's layers,
without the output layer. Source: arXiv:2411.05288, the baseline and Redis of its comparison.
Where we differ: of several ways to move layers that are equally fast we take the one with most
layers on the last device, and larger stages last, where fewer microbatches are alive.
"""

from collections.abc import Sequence
from fractions import Fraction

from penstock.core.numbers import read_number
from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules._registry import Case, Claim, Option, schedule
from penstock.schedules.generators.streams import alternate

PAPER = "arXiv:2411.05288"
MOST_LAYERS = 1_000


def _count(text: str) -> int:
    if int(text) > MOST_LAYERS:
        raise ValueError
    return int(text)


LAYERS = Option(
    "layers",
    _count,
    default=lambda c: 8,
    text=f"how many transformer layers a device has on average, up to {MOST_LAYERS}",
)

HEAD = Option(
    "head",
    read_number,
    default=lambda c: Fraction(2),
    text="how many transformer layers cost as much as the output layer: V/(12h + 2s) for a "
    "vocabulary of V, a width of h and sequences of s tokens",
    least=0,
)

OPTIONS = (LAYERS, HEAD)


def even_layers(c: Case) -> list[int]:
    """The same number of layers for every device."""
    return [c[LAYERS]] * c.p


def moved_layers(c: Case) -> list[int]:
    """Layers of each device such that the slowest, with the output layer, is as fast as can be."""
    total, others = c[LAYERS] * c.p, c.p - 1
    if not others:
        return [total]
    kept = min(
        range(c[LAYERS], -1, -1),
        key=lambda kept: max(kept + c[HEAD], -(-(total - kept) // others)),
    )
    least, more = divmod(total - kept, others)
    return [least] * (others - more) + [least + 1] * more + [kept]


def _shape(c: Case, layers: Sequence[int]) -> Shape:
    """Stages that compute their layers and the output layer, and keep what their layers do."""
    kept = tuple(Fraction(count, c[LAYERS]) for count in layers)
    work = (*kept[:-1], kept[-1] + c[HEAD] / c[LAYERS])
    return Shape(
        c.p,
        c.p,
        (1,) * c.m,
        stage_share=work,
        kind_share=(("act", kept), ("stash", kept)),
        layers=tuple(layers),
    )


def _once_around(c: Case, shape: Shape) -> Fraction:
    work = shape.stage_share
    return ((c.m - 1) * max(work) + sum(work)) * c.step


def _peak(c: Case, layers: Sequence[int]) -> tuple[Fraction, ...]:
    held = (min(c.p - r, c.m) * count for r, count in enumerate(layers))
    return tuple(Fraction(count, c[LAYERS]) * c.act for count in held)


def _lanes(shape: Shape) -> Lanes:
    p, m = shape.devices, shape.microbatches
    return [
        alternate(
            [("F", r, i, 0) for i in range(m)],
            [("B", r, i, 0) for i in range(m)],
            warmup=p - 1 - r,
        )
        for r in range(p)
    ]


@schedule(
    name="1f1b-head",
    title="1F1B with the output layer on the last device",
    paper=PAPER,
    shape=lambda c: _shape(c, even_layers(c)),
    options=OPTIONS,
    claims=(
        Claim(
            "makespan",
            "(m + p - 1 + m head/layers)(F + B)",
            lambda c: (c.m + c.p - 1 + c.m * c[HEAD] / c[LAYERS]) * c.step,
            PAPER,
        ),
        Claim("peak", "min(p - r, m)", lambda c: _peak(c, even_layers(c)), PAPER),
    ),
    cases=(Case(4, 8), Case(4, 2, options={"layers": 4}), Case(1, 2)),
)
def one_f_one_b_head(shape: Shape, layers: int, head: Fraction) -> Lanes:
    """The order of 1F1B; what each device has to do is a matter of the shape."""
    return _lanes(shape)


@schedule(
    name="1f1b-redis",
    title="1F1B with layers moved away from the output layer",
    paper=PAPER,
    shape=lambda c: _shape(c, moved_layers(c)),
    options=OPTIONS,
    claims=(
        Claim(
            "makespan",
            "((m - 1) longest + all)(F + B), the longest stage and the sum of all stages",
            lambda c: _once_around(c, _shape(c, moved_layers(c))),
            f"derived from {PAPER}",
            bound=True,
        ),
        Claim(
            "makespan",
            "((m - 1) longest + all)(F + B)",
            lambda c: _once_around(c, _shape(c, moved_layers(c))),
            f"derived from {PAPER}",
            when=lambda c: _last_is_longest(_shape(c, moved_layers(c))),
            condition="no device is slower than the last",
        ),
        Claim(
            "peak",
            "min(p - r, m) times the layers of the device, over layers",
            lambda c: _peak(c, moved_layers(c)),
            PAPER,
        ),
    ),
    cases=(
        Case(4, 8),
        Case(4, 8, options={"layers": 4, "head": Fraction(9, 4)}),
        Case(8, 16, options={"layers": 2, "head": Fraction(9, 2)}),
        Case(3, 2, options={"layers": 1, "head": Fraction(1, 2)}),
        Case(1, 2),
    ),
)
def one_f_one_b_redis(shape: Shape, layers: int, head: Fraction) -> Lanes:
    """The order of 1F1B; what each device has to do is a matter of the shape."""
    return _lanes(shape)


def _last_is_longest(shape: Shape) -> bool:
    return shape.stage_share[-1] == max(shape.stage_share)
