"""HelixPipe: attention of different microbatches on different devices at the same time.

In long sequences attention takes most of the time, and a pipeline of whole layers idles for p - 1
times the layers of a device. But attention has no weights, so it may run anywhere. Cut each layer
at its attention, place only the parts with weights round-robin, and send the microbatches of a
layer to different devices for their attention: what idles is then p - 1 times the part with weights
of one layer. A fold of 2 takes microbatches two at a time, so that the transfer of one hides behind
the work of the other.

    p = 2, v = 1, m = 2, fold = 1 (0, 2, 4 are parts with weights, 1 and 3 the attention between)
    device 0  0F0 0F1 1F1 3F0 4F0 4F1 4B1 4B0 3B0 1B1 0B1 0B0
    device 1  1F0 2F0 2F1 3F1 3B1 2B1 2B0 1B0

Needs: p >= 2; m is a multiple of p fold. -v counts the layers of a device, each with its attention.
Claims: makespan (m + idle/(v(1 + attention)))(F + B) for attention >= 1, where idle is p - 1 for
fold = 1 and 2(p - 2) for fold = 2 and p >= 3; peak m on every device. Source: arXiv:2507.00394 and
its released code.
Where we differ: half of a layer's time without attention is in front of it, half behind. As in the
released code, the residual travels along with the input and the output of the attention.
"""

from collections.abc import Iterator
from fractions import Fraction

from penstock.core.numbers import read_number
from penstock.core.schedule import Lanes
from penstock.core.shape import TO_ATTENTION, Shape
from penstock.schedules._registry import Case, Claim, Need, Option, schedule
from penstock.schedules.generators.streams import PlainOp

PAPER = "arXiv:2507.00394"

GroupTurn = tuple[int, int]
"""Stage, and group of microbatches."""


def _shape(case: Case) -> Shape:
    """Stage 2j is part j, from attention to attention; stage 2l + 1 is the attention of layer l."""
    layers = case.p * case.v
    layer = Fraction(1, case.v)
    part = layer / (1 + case[ATTENTION])
    inner = (layer - part, part) * layers
    return Shape(
        case.p,
        2 * layers + 1,
        (1,) * case.m,
        stage_share=(part / 2, *inner[:-1], part / 2),
        weightless=frozenset(range(1, 2 * layers, 2)),
        to_attention=case[SEND],
    )


def _idle(case: Case) -> Fraction:
    """Time that a device idles in each direction, in parts with weights."""
    fold = case[FOLD]
    return max(Fraction(fold * (case.p - 3) + 2), Fraction(fold * (case.p - 2), 2) + 1)


def _makespan(case: Case) -> Fraction:
    part = 1 / (case.v * (1 + case[ATTENTION]))
    return (case.m + _idle(case) * part) * case.step


FOLD = Option(
    "fold",
    int,
    default=lambda c: 2,
    text="how many microbatches go together, so that the transfer of one overlaps with the "
    "work of the others; 2 by default",
)

ATTENTION = Option(
    "attention",
    read_number,
    default=lambda c: Fraction(4),
    text="time of a layer's attention divided by the time of the rest of the layer; a property "
    "of the model, 4 by default",
    least=0,
)


def _read_sent(text: str) -> str:
    if text not in TO_ATTENTION:
        raise ValueError(text)
    return text


SEND = Option(
    "send",
    _read_sent,
    default=lambda c: TO_ATTENTION[0],
    text="what the attention of a layer is sent in addition to the residual: heads (queries, keys "
    "and values), the default, or weights (the normed input and the QKV weights; their gradient "
    "comes back), which is less where sequences are long",
    least=None,
)


@schedule(
    name="helixpipe",
    title="attention of different microbatches side by side",
    paper=PAPER,
    chunks=None,
    default_chunks=1,
    counted="layers",
    shape=_shape,
    options=(FOLD, ATTENTION, SEND),
    needs=(
        Need(lambda c: c.p >= 2, "p >= 2", "give at least 2 devices, or take another schedule"),
        Need(
            lambda c: c.m % (c.p * c[FOLD]) == 0,
            "m is a multiple of p fold",
            "make -m a multiple of {p} times {fold}, or give -o fold=1",
        ),
    ),
    claims=(
        Claim(
            "makespan",
            "(m + idle/(v(1 + attention)))(F + B), "
            "idle = max(fold (p - 3) + 2, fold (p - 2)/2 + 1)",
            _makespan,
            f"{PAPER}, released code; derived for p < 4",
            when=lambda c: c[ATTENTION] >= 1,
            condition="attention >= 1",
        ),
        Claim("peak", "m", lambda c: (c.m * c.act,) * c.p, f"{PAPER}, first in, last out"),
    ),
    cases=(
        Case(4, 8, v=1),
        Case(4, 4, v=1, options={"fold": 1}),
        Case(2, 4, v=2),
        Case(2, 4, v=1, options={"fold": 1}),
        Case(4, 12, v=2, options={"fold": 3, "attention": 2}),
        Case(3, 6, v=2, options={"attention": Fraction(1, 2)}),
        Case(8, 32, v=3),
        Case(2, 4, v=1, options={"send": "weights"}),
    ),
)
def helixpipe(shape: Shape, fold: int, attention: Fraction, send: str) -> Lanes:
    """All forwards, then their backwards in the reverse order on every device."""
    lanes: list[list[PlainOp]] = []
    for r in range(shape.devices):
        units = [
            (stage, group * fold + x)
            for turn in _turns(shape, r, shape.microbatches // fold)
            for x in range(fold)
            for stage, group in turn
        ]
        forwards: list[PlainOp] = [("F", stage, mb, 0) for stage, mb in units]
        lanes.append([*forwards, *(("B", stage, mb, 0) for stage, mb in reversed(units))])
    return lanes


def _turns(shape: Shape, r: int, groups: int) -> Iterator[list[GroupTurn]]:
    """What device r does forward: a turn is done for one microbatch of its group after the other.

    p groups go through all layers, then the next p: layers are counted on through these repeats.
    A device does the attention that leads to its part, last group first, then that part, and the
    attention of the last group, which stays.
    """
    p, layers = shape.devices, shape.stages // 2
    ends = groups // p * layers

    def attention(count: int, d: int) -> list[GroupTurn]:
        repeat, layer = divmod(count, layers)
        return [(2 * layer + 1, repeat * p + d)] if 0 <= count < ends else []

    def parts(count: int, d: int) -> list[GroupTurn]:
        repeat, layer = divmod(count, layers)
        final = [(2 * layers, (repeat - 1) * p + d)] if layer == 0 < repeat else []
        return final + ([(2 * layer, repeat * p + d)] if count < ends else [])

    for count in range(r, ends + p, p):
        yield from (attention(count - d - 1, d) for d in reversed(range(1, p - 1)))
        yield attention(count - 1, 0) + parts(count, 0)
        yield from (parts(count, d) for d in range(1, p - 1))
        yield parts(count, p - 1) + attention(count, p - 1)
