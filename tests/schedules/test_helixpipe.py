from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import pytest

from loops import each_case
from penstock.check import check, check_program
from penstock.core.homes import weight_homes
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.transfers import moves_of
from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.lower import lower
from penstock.sim import simulate
from penstock.sim.timeline import Timeline
from penstock.transform import recompute_stages
from schedules.picture import built

PART, ATTENTION = Fraction(1), Fraction(4)
"""Times of a layer without its attention and of its attention, in the examples of section 7."""


def helix(p: int, layers: int, fold: int, m: int, attention: Fraction = ATTENTION) -> Schedule:
    return built("helixpipe", p=p, m=m, v=layers // p, fold=fold, attention=attention)


def priced(
    p: int,
    layers: int,
    fold: int,
    m: int,
    *,
    attention: Fraction = ATTENTION,
    hop: Fraction = Fraction(0),
) -> Timeline:
    """A part takes 1, its backward 2."""
    device = Fraction(layers, p) * (PART + attention)
    cost = UnitCost(times=dict.fromkeys("FIW", device), hop=hop)
    return simulate(helix(p, layers, fold, m, attention), cost)


def idle(timeline: Timeline) -> Fraction:
    (work,) = set(timeline.work)
    return timeline.makespan - work


def forwards(schedule: Schedule) -> list[str]:
    """Each lane forward as the paper writes it: P for parts with weights, A for attention."""
    return [
        " ".join(_word(op) for op in schedule.lane(device) if op.kind == "F")
        for device in range(schedule.shape.devices)
    ]


def _word(op: Op) -> str:
    return f"{'PA'[op.stage % 2]}{op.stage // 2}.{op.mb}"


def listed(text: str) -> list[str]:
    """The lanes of a listing: one per line that starts with its device."""
    lanes: list[list[str]] = []
    for word in text.split():
        if word.isdigit():
            lanes.append([])
        else:
            lanes[-1].append(word)
    return [" ".join(lane) for lane in lanes]


def test_the_published_order_one_microbatch_at_a_time() -> None:
    """Section 6, first listing."""
    assert forwards(helix(4, 4, fold=1, m=4)) == listed("""
        0 P0.0 P0.1 P0.2 P0.3 A0.3 A1.2 A2.1 A3.0 P4.0 P4.1 P4.2 P4.3
        1 A0.0 P1.0 P1.1 P1.2 P1.3 A1.3 A2.2 A3.1
        2 A0.1 A1.0 P2.0 P2.1 P2.2 P2.3 A2.3 A3.2
        3 A0.2 A1.1 A2.0 P3.0 P3.1 P3.2 P3.3 A3.3
    """)


def test_the_published_order_two_microbatches_at_a_time() -> None:
    """Section 6, second listing."""
    assert forwards(helix(4, 4, fold=2, m=8)) == listed("""
        0 P0.0 P0.1 P0.2 P0.3 P0.4 P0.5 P0.6 A0.6 P0.7 A0.7 A1.4 A1.5 A2.2 A2.3 A3.0 P4.0 A3.1
          P4.1 P4.2 P4.3 P4.4 P4.5 P4.6 P4.7
        1 A0.0 P1.0 A0.1 P1.1 P1.2 P1.3 P1.4 P1.5 P1.6 A1.6 P1.7 A1.7 A2.4 A2.5 A3.2 A3.3
        2 A0.2 A0.3 A1.0 P2.0 A1.1 P2.1 P2.2 P2.3 P2.4 P2.5 P2.6 A2.6 P2.7 A2.7 A3.4 A3.5
        3 A0.4 A0.5 A1.2 A1.3 A2.0 P3.0 A2.1 P3.1 P3.2 P3.3 P3.4 P3.5 P3.6 A3.6 P3.7 A3.7
    """)


def test_the_published_order_of_two_repeats() -> None:
    """Section 6, third listing."""
    assert forwards(helix(2, 2, fold=1, m=4)) == listed("""
        0 P0.0 P0.1 A0.1 A1.0 P2.0 P0.2 P2.1 P0.3 A0.3 A1.2 P2.2 P2.3
        1 A0.0 P1.0 P1.1 A1.1 A0.2 P1.2 P1.3 A1.3
    """)


def test_a_repeat_of_pairs_starts_as_soon_as_each_microbatch_of_the_last_one_ends() -> None:
    """Section 2, steps 2 and 4 for stage 0, which no listing shows for fold 2."""
    (first, _) = forwards(helix(2, 2, fold=2, m=8))
    (wanted,) = listed("""
        0 P0.0 P0.1 P0.2 A0.2 P0.3 A0.3 A1.0 P2.0 P0.4 A1.1 P2.1 P0.5 P2.2 P0.6 A0.6 P2.3 P0.7 A0.7
          A1.4 P2.4 A1.5 P2.5 P2.6 P2.7
    """)
    assert first == wanted


Turn = list[tuple[str, int, int]]
"""P or A, its number, and its group; done for one microbatch of the group after the other."""


def warm_up(p: int, layers: int, r: int, q: int) -> Iterator[Turn]:
    """Steps 1 and 2 of repeat q."""
    for d in reversed(range(r)):
        yield [("A", r - d - 1, q * p + d)] + [("P", r, q * p)] * (d == 0)
    for d in range(1, p):
        last = [("P", layers, (q - 1) * p + d)] * (r == 0 < q)
        yield last + [("P", r, q * p + d)] + [("A", r, q * p + d)] * (d == p - 1)


def steady(p: int, part: int, q: int) -> Iterator[Turn]:
    """Step 3."""
    for d in reversed(range(p - 1)):
        yield [("A", part - d - 1, q * p + d)] + [("P", part, q * p)] * (d == 0)
    for d in range(1, p):
        yield [("P", part, q * p + d)] + [("A", part, q * p + d)] * (d == p - 1)


def cool_down(p: int, layers: int, r: int, q: int, repeats: int) -> Iterator[Turn]:
    """Step 4."""
    for d in reversed(range(r, p - 1)):
        follows = [("P", layers, q * p)] + [("P", 0, (q + 1) * p)] * (q + 1 < repeats)
        yield [("A", layers + r - d - 1, q * p + d)] + follows * (r == d == 0)


def told(p: int, layers: int, r: int, repeats: int) -> Iterator[Turn]:
    """All forwards of stage r as section 2 tells them."""
    if r == 0:
        yield [("P", 0, 0)]
    for q in range(repeats):
        yield from warm_up(p, layers, r, q)
        for loop in range(1, layers // p):
            yield from steady(p, loop * p + r, q)
        yield from cool_down(p, layers, r, q, repeats)
    if r == 0:
        yield from ([("P", layers, (repeats - 1) * p + d)] for d in range(1, p))


@each_case("p", [2, 3, 5])
@each_case("loops", [1, 2, 3])
@each_case("fold", [1, 2, 3])
@each_case("repeats", [1, 2, 3])
def test_section_2_the_order_step_by_step(p: int, loops: int, fold: int, repeats: int) -> None:
    layers = loops * p
    assert forwards(helix(p, layers, fold, m=p * fold * repeats)) == [
        " ".join(
            f"{letter}{number}.{group * fold + x}"
            for turn in told(p, layers, r, repeats)
            for x in range(fold)
            for letter, number, group in turn
        )
        for r in range(p)
    ]


@each_case("repeats", [1, 2])
@each_case("fold", [1, 2, 3])
def test_backwards_are_the_forwards_reversed(fold: int, repeats: int) -> None:
    """Section 2: first in, last out on every device."""
    schedule = helix(4, 8, fold, m=4 * fold * repeats)
    for device in range(4):
        lane = schedule.lane(device)
        half = len(lane) // 2
        assert lane[half:] == [op._replace(kind="B") for op in reversed(lane[:half])]


@each_case(("p", "fold"), [(4, 1), (4, 2), (3, 3), (2, 2)])
def test_parts_are_dealt_round_robin_and_attention_goes_where_its_microbatch_says(
    p: int, fold: int
) -> None:
    """Section 1."""
    schedule = helix(p, 2 * p, fold, m=2 * p * fold)
    assert weight_homes(schedule) == {2 * j: [j % p] for j in range(2 * p + 1)}
    for device in range(p):
        for op in schedule.lane(device):
            if op.stage % 2:
                group = op.mb // fold % p
                assert device == (op.stage // 2 + group + 1) % p


@each_case(
    ("p", "layers", "fold", "m", "makespan", "busy"),
    [
        (4, 4, 1, 4, 69, 60),
        (4, 4, 2, 8, 132, 120),
        (2, 4, 2, 4, 123, 120),
        (4, 8, 2, 8, 252, 240),
        (8, 32, 2, 16, 996, 960),
        (8, 32, 1, 16, 981, 960),
    ],
)
def test_the_published_makespans(
    p: int, layers: int, fold: int, m: int, makespan: int, busy: int
) -> None:
    """Section 7: m (L/p) (part + attention) 3 of work on every device."""
    timeline = priced(p, layers, fold, m)
    assert timeline.makespan == makespan
    assert timeline.work == (busy,) * p
    assert busy == m * (layers // p) * (PART + ATTENTION) * 3


@pytest.mark.parametrize(("p", "layers", "m", "makespan"), [(4, 8, 8, 330), (8, 32, 16, 1380)])
def test_what_1f1b_takes_for_the_same_model(p: int, layers: int, m: int, makespan: int) -> None:
    """Section 7."""
    device = Fraction(layers, p) * (PART + ATTENTION)
    cost = UnitCost(times=dict.fromkeys("FIW", device))
    assert simulate(built("1f1b", p=p, m=m), cost).makespan == makespan


@each_case(("fold", "bubble"), [(1, 21), (2, 36)])
@each_case("attention", [1, 2, 4, 16])
@each_case("layers", [8, 24])
@each_case("repeats", [1, 3])
def test_eight_devices_idle_the_same_whatever_attention_layers_and_repeats(
    fold: int, bubble: int, attention: int, layers: int, repeats: int
) -> None:
    """Section 7."""
    timeline = priced(8, layers, fold, 8 * fold * repeats, attention=Fraction(attention))
    assert idle(timeline) == bubble


@each_case("p", range(2, 12))
def test_how_long_a_device_idles(p: int) -> None:
    """Section 5: forward p - 1, 2(p - 2) and fold (p - 3) + 2 parts; three times that in all."""
    assert idle(priced(p, p, 1, p)) == 3 * (p - 1)
    assert idle(priced(p, p, 2, 2 * p)) == 3 * (2 * (p - 2) if p > 2 else 1)
    for fold in (3, 4):
        general = fold * (p - 3) + 2 if p >= 4 else Fraction(fold * (p - 2), 2) + 1
        assert idle(priced(p, p, fold, fold * p)) == 3 * general


@pytest.mark.parametrize(
    ("fold", "bubbles"),
    [
        (1, ("21", "44", "67", "114", "210")),
        (2, ("36", "37.5", "39", "42", "75")),
        (3, ("51", "52.5", "54", "57", "63")),
    ],
)
def test_pairs_hide_latency(fold: int, bubbles: tuple[str, ...]) -> None:
    """Section 7: eight devices, 24 layers, latency 0, 1/4, 1/2, 1 and 2 parts."""
    found = [
        idle(priced(8, 24, fold, 8 * fold, hop=Fraction(hop)))
        for hop in ("0", "0.25", "0.5", "1", "2")
    ]
    assert found == [Fraction(bubble) for bubble in bubbles]


def test_every_device_holds_the_same_when_the_step_turns_around() -> None:
    """Sections 4 and 7: 16 parts and 16 attentions each; the first device also has 8 last parts."""
    schedule = helix(4, 8, fold=2, m=8)
    for device in range(4):
        kinds = Counter("PA"[op.stage % 2] for op in schedule.lane(device) if op.kind == "F")
        assert kinds == {"P": 24 if device == 0 else 16, "A": 16}
    assert simulate(schedule).peak == (8, 8, 8, 8)


def test_recomputing_all_but_attention_adds_a_forward_of_the_parts_to_the_backward() -> None:
    """Section 5: with R and B as one, idle (part + 3 parts); apart, an R may run while waiting."""
    schedule = helix(4, 4, fold=1, m=4)
    device = PART + ATTENTION
    times = dict.fromkeys("FIW", device)
    fused = {
        op: 3 * schedule.shape.share_of_stage(op.stage) * device
        for op in schedule.table.ops()
        if op.kind == "B" and op.stage % 2 == 0
    }
    together = simulate(schedule, UnitCost(times=times, op_times=fused))
    assert idle(together) == 3 * (1 + 3)
    apart = simulate(recompute_stages(schedule, range(0, 9, 2)), UnitCost(times=times))
    assert apart.work == together.work
    assert idle(apart) == Fraction("11.5")


def test_devices_swap_with_one_other_device_at_a_time() -> None:
    """Section 3: from part r of group d to (r + d + 1) mod p, and back from attention of d + 1."""
    p = 4
    schedule = helix(p, 8, fold=2, m=8)
    moves, table = moves_of(schedule), schedule.table
    for move in range(len(moves.writer)):
        writer = table.op(int(moves.writer[move]))
        source = int(table.device[moves.writer[move]])
        target = int(table.device[moves.reader[move]])
        d = writer.mb // 2
        if moves.payload(move) == "x" and writer.stage % 2 == 0:
            assert target == (source + d + 1) % p
            assert d < p - 1
        elif moves.payload(move) == "x":
            assert source == (target + d) % p
            assert d > 0


def test_all_devices_talk_to_all_others_and_do_not_deadlock() -> None:
    """Section 3."""
    program = lower(helix(4, 8, fold=2, m=16))
    assert check_program(program) == ()
    edges = {(channel.source, channel.target) for channel in program.channels}
    assert edges == {(a, b) for a in range(4) for b in range(4) if a != b}


def test_gradients_add_up_in_descending_order() -> None:
    """Section 8: bit equality with one process is not to be expected."""
    schedule = helix(4, 4, fold=2, m=8)
    assert check(schedule).unordered == tuple(range(9))


def test_a_batch_that_does_not_fill_its_groups_is_refused() -> None:
    with pytest.raises(ShapeError, match="m is a multiple of p fold"):
        helix(4, 4, fold=2, m=12)
