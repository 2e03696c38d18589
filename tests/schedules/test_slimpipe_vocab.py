from fractions import Fraction
from itertools import accumulate

from loops import each_case
from penstock.core.schedule import Schedule
from penstock.cost.model import UnitCost
from penstock.sim import simulate
from schedules.picture import built, lanes, picture, priced

SHAPES = [(2, 1, 1, 2), (4, 2, 1, 4), (4, 2, 2, 8), (3, 2, 2, 4), (5, 2, 1, 3), (4, 3, 1, 8)]
"""p, m, v and k."""


def made(p: int, m: int, v: int, k: int) -> Schedule:
    return built("slimpipe-vocab", p=p, m=m, v=v, k=k)


def test_passes_stand_around_the_steps_of_the_lock_step() -> None:
    assert lanes(made(2, 1, 1, 2)) == picture("""
        0 E0 F0    E0.1 F0.1 S0      S0.1 T0.1      T0 B0.1 D0.1 B0 D0
        1 E0       E0.1 F0   S0 F0.1 S0.1 T0.1 B0.1 T0 B0   D0.1    D0
    """)


@each_case("shape", SHAPES)
def test_section_7_the_order_of_the_stages_is_that_without_passes(
    shape: tuple[int, int, int, int],
) -> None:
    p, m, v, k = shape
    plain = built("slimpipe", p=p, m=m, v=v, k=k)
    for r in range(p):
        ops = [op for op in made(*shape).lane(r) if op.kind in "FB"]
        assert ops == plain.lane(r)


@each_case("shape", SHAPES)
def test_section_7_all_devices_join_the_passes_in_the_same_order(
    shape: tuple[int, int, int, int],
) -> None:
    schedule = made(*shape)
    orders = {
        tuple((op.kind, op.mb, op.slice) for op in schedule.lane(r) if op.kind in "ESTD")
        for r in range(shape[0])
    }
    assert len(orders) == 1


@each_case("shape", SHAPES)
def test_section_7_device_r_joins_r_embeddings_before_its_first_input(
    shape: tuple[int, int, int, int],
) -> None:
    p, m, _, k = shape
    for r in range(p):
        kinds = [op.kind for op in made(*shape).lane(r)]
        before = kinds[: kinds.index("F")].count("E")
        assert before == min(r + 1, m * k)  # its own step embeds one more slice, for device 0


@each_case("shape", SHAPES)
def test_section_4_every_device_keeps_its_words_of_one_sequence(
    shape: tuple[int, int, int, int],
) -> None:
    """4 tokens V/p bytes in 32 bits: shards of the k slices of one microbatch wait for T."""
    p, _, _, k = shape
    for r in range(p):
        steps = [{"S": 1, "T": -1}.get(op.kind, 0) for op in made(*shape).lane(r)]
        most = max(accumulate(steps))
        tokens, words = 2**16, 2**17
        assert most * Fraction(tokens, k) * Fraction(words, p) * 4 == Fraction(
            4 * tokens * words, p
        )


@each_case("shape", SHAPES)
@each_case("passes", [(0, 0), (1, 2), (3, 1), (Fraction(1, 7), 5)])
def test_passes_add_their_time_and_no_bubble(
    shape: tuple[int, int, int, int], passes: tuple[Fraction, Fraction]
) -> None:
    p, m, v, k = shape
    times = {"F": 3, "I": 4, "W": 2, "S": passes[0], "T": passes[1]}
    timeline = simulate(made(*shape), UnitCost(times={a: Fraction(b) for a, b in times.items()}))
    assert timeline.makespan == (m + Fraction(p - 1, k * v)) * 9 + m * sum(passes)
    assert timeline.peak == priced(built("slimpipe", p=p, m=m, v=v, k=k)).peak


def test_on_one_device_the_output_layer_would_hold_up_every_slice() -> None:
    """The same output layer, undivided on the last device: p times as long there, for all."""
    p, m, k, head = 4, 2, 8, Fraction(1)
    plain = built("slimpipe", p=p, m=m, k=k)
    slow = {
        op: Fraction(1 if op.kind == "F" else 2, k) + p * head / (2 * k) for op in plain.lane(p - 1)
    }
    alone = simulate(plain, UnitCost(op_times=slow)).makespan
    cost = UnitCost(times={"S": head / 2, "T": head / 2})
    assert simulate(made(p, m, 1, k), cost).makespan == (m + Fraction(p - 1, k)) * 3 + m * head
    assert alone > simulate(made(p, m, 1, k), cost).makespan + m
