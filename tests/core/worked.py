"""Schedules typed as the papers print them, for tests of the meaning table.

Each exercises kinds that plain pipelines do not have: vocabulary passes, weightless stages whose
device depends on the microbatch, braided pairs, gangs, offloads.
"""

from fractions import Fraction

from penstock.core.ops import Op
from penstock.core.schedule import Draft, Schedule
from penstock.core.shape import Shape

VOCABULARY_1 = """
F0 F1 F2 F3 S0 F4 T0 S1 F5 T1 S2 T2 S3 T3 S4 B0 F6 T4 S5 B1 F7 T5 S6 B2 T6 S7 B3 T7 B4 B5 B6 B7
F0 F1 F2 S0 F3 T0 S1 F4 T1 S2 T2 S3 B0 T3 S4 F5 B1 T4 S5 F6 B2 T5 S6 F7 B3 T6 S7 B4 T7 B5 B6 B7
F0 F1 S0 F2 T0 S1 F3 T1 S2 B0 T2 S3 F4 B1 T3 S4 F5 B2 T4 S5 F6 B3 T5 S6 F7 B4 T6 S7 B5 T7 B6 B7
F0 S0 F1 T0 S1 F2 B0 T1 S2 F3 B1 T2 S3 F4 B2 T3 S4 F5 B3 T4 S5 F6 B4 T5 S6 F7 B5 T6 S7 B6 T7 B7
"""
"""arXiv:2411.05288, algorithm 1, four devices, eight microbatches, without input passes."""

VOCABULARY_2 = """
F0 F1 F2 F3 S0 F4 T0 S1 T1 S2 T2 S3 B0 F5 T3 S4 B1 F6 T4 S5 B2 F7 T5 S6 B3 T6 S7 B4 B5 B6 B7 T7
F0 F1 F2 S0 F3 T0 S1 T1 S2 B0 T2 S3 F4 B1 T3 S4 F5 B2 T4 S5 F6 B3 T5 S6 F7 B4 T6 S7 B5 B6 B7 T7
F0 F1 S0 F2 T0 S1 B0 T1 S2 F3 B1 T2 S3 F4 B2 T3 S4 F5 B3 T4 S5 F6 B4 T5 S6 F7 B5 T6 S7 B6 B7 T7
F0 S0 F1 B0 T0 S1 F2 B1 T1 S2 F3 B2 T2 S3 F4 B3 T3 S4 F5 B4 T4 S5 F6 B5 T5 S6 F7 B6 T6 S7 B7 T7
"""
"""The same with algorithm 2: the backward waits for S, and T may come any time."""

HELIX = """
P0.0 P0.1 P0.2 P0.3 A0.3 A1.2 A2.1 A3.0 P4.0 P4.1 P4.2 P4.3
A0.0 P1.0 P1.1 P1.2 P1.3 A1.3 A2.2 A3.1
A0.1 A1.0 P2.0 P2.1 P2.2 P2.3 A2.3 A3.2
A0.2 A1.1 A2.0 P3.0 P3.1 P3.2 P3.3 A3.3
"""
"""arXiv:2507.00394: parameter parts P and attentions A, four devices, four layers; the backward is
the forward in reverse."""

BRAIDED = """
Fa1 Fa2 Fa3 Fb1 Fa4 Fb2+Ib1 Fa5+Wb1 Fb3+Bb2 Fa6+Ba1 Fb4+Bb3 Ba2 Fb5+Ib4 Ba3 Fb6+Ib5 Ba4 Bb6 Ba5 \
Wb4 Wb5 Ba6
Fa1 Fb1 Fa2 Fb2 Fa3+Fa4 Fb3+Bb1 Fa5+Ba1 Fb4+Bb2 Fa6+Ba2 Fb5+Ib3 Ba3 Fb6+Ib4 Ba4 Bb5 Ba5 Bb6 Ba6 \
Wb3 Wb4
"""
"""arXiv:2510.27257, two devices, six microbatches: a and b are a device's two chunks."""


def vocabulary(text: str, loss: str) -> Schedule:
    """1F1B with output-layer passes; F and B of device r are stage r, S and T shard r."""
    lanes = [
        [Op(word[0], device, int(word[1:])) for word in line.split()]
        for device, line in enumerate(text.split("\n")[1:-1])
    ]
    shape = Shape(4, 4, (1,) * 8, loss=loss)
    return Schedule.of("vocabulary", shape, lanes)


def helix() -> Schedule:
    """Parameter part j is stage 2j, the attention of layer l is stage 2l + 1, weightless."""
    lanes = []
    for line in HELIX.split("\n")[1:-1]:
        units = [(2 * int(w[1]) + (w[0] == "A"), int(w[3])) for w in line.split()]
        forward = [Op("F", stage, mb) for stage, mb in units]
        lanes.append([*forward, *(Op("B", op.stage, op.mb) for op in reversed(forward))])
    half, one, four = Fraction(1, 2), Fraction(1), Fraction(4)
    shares = (half, four, one, four, one, four, one, four, half)
    shape = Shape(
        4,
        9,
        (1,) * 4,
        stage_share=shares,
        weightless=frozenset({1, 3, 5, 7}),
        skips=((0, 2), (2, 4), (4, 6), (6, 8)),
    )
    return Schedule.of("helix", shape, lanes)


def braided() -> Schedule:
    """V placement: chunk a of device r is stage r, chunk b is stage 3 - r."""

    def strand(device: int, word: str) -> Op:
        return Op(word[0], device if word[1] == "a" else 3 - device, int(word[2:]) - 1)

    lanes = [
        [
            tuple(strand(device, part) for part in word.split("+"))
            if "+" in word
            else strand(device, word)
            for word in line.split()
        ]
        for device, line in enumerate(BRAIDED.replace("\\\n", "").split("\n")[1:-1])
    ]
    return Schedule.of("braided", Shape.even(2, 6, 2), lanes)


def multiplexed() -> Schedule:
    """arXiv:2503.10377, two stages, one sequence in four: the ramps are done by both devices."""
    ramp_up, ramp_down = Op("F", 0, 0, 0), Op("F", 1, 0, 3)
    lanes = [
        [ramp_up, *(Op("F", 0, 0, s) for s in (1, 2, 3)), ramp_down],
        [ramp_up, *(Op("F", 1, 0, s) for s in (0, 1, 2)), ramp_down],
    ]
    for device, lane in enumerate(lanes):
        lane += [Op("B", device, 0, s) for s in (3, 2, 1, 0)]
    return Schedule.of("gangs", Shape(2, 2, (4,)), Draft(lanes, gangs=(ramp_up, ramp_down)))


def offloaded(share: Fraction = Fraction(1)) -> Schedule:
    """One device, three microbatches, all forward; the first activation goes to the host."""
    out, back = Op("O", 0, 0), Op("L", 0, 0)
    compute = [Op(kind, 0, mb) for kind, mb in ("F0", "F1", "F2", "B2", "B1", "B0")]
    draft = Draft(
        [[op._replace(mb=int(op.mb)) for op in compute]],
        copy=[[out, back]],
        after=(
            (Op("F", 0, 2), out),
            (back, Op("B", 0, 2)),
        ),
        shares=() if share == 1 else ((out, share), (back, share)),
    )
    return Schedule.of("offloaded", Shape(1, 1, (1,) * 3), draft)
