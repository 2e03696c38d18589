from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

from loops import each_case
from penstock.check import check
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.cost.model import UnitCost
from penstock.cost.shares import Scaled
from penstock.errors import ShapeError
from penstock.plan.offload import offload_ratios, resident
from penstock.schedules import build, find
from penstock.schedules.generators.gangs import helped_time, members
from penstock.sim import simulate
from penstock.transform.offload import Window, add_copies
from schedules.picture import built, lanes, picture, priced

SIZES = (4, 3, 2, 2)
"""Activations of four slices of equal compute; 2 can be copied in the time of a forward."""


@dataclass(frozen=True)
class Uneven(UnitCost):
    """Slices of equal compute whose activations are unequal."""

    def amounts(self, schedule: Schedule, size: str) -> Scaled:
        held = SIZES if size == "act" else (0,) * len(SIZES)
        return Scaled(np.array(held)[schedule.unit], Fraction(1))


def run(ratios: str, *, p: int = 1, held: bool = True) -> tuple[Fraction, Fraction]:
    """Makespan and peak of the first device, in times and sizes of slices."""
    schedule = built("sppo", p=p, m=1, k=4, ratios=ratios)
    if not held:
        schedule = replace(schedule, after=(), derived={})
    shares = dict(schedule.shares)
    copies = {
        op: Fraction(SIZES[op.slice], 2) * shares.get(op, Fraction(1))
        for op in schedule.table.ops()
        if op.kind in "OL"
    }
    times = {kind: Fraction(4) for kind in "FIW"}
    timeline = simulate(schedule, Uneven(times=times, op_times=copies))
    return timeline.makespan, timeline.peak[0]


ADAPTIVE = ",".join(map(str, offload_ratios([Fraction(size) for size in SIZES], Fraction(2))))


def test_copies_keep_one_slice_behind_and_come_back_one_ahead() -> None:
    schedule = built("sppo", p=2, m=1, k=4, ratios="1/2")
    assert lanes(schedule) == picture("""
        0 F0 F0.1 F0.2 F0.3 B0.3 B0.2 B0.1 B0
        1 F0 F0.1 F0.2 F0.3 B0.3 B0.2 B0.1 B0
    """)
    for stage in range(2):
        copies = [str(op).removeprefix(str(stage)) for op in schedule.lane(stage, "copy")]
        assert copies == ["O0", "O0.1", "O0.2", "L0.2", "L0.1", "L0"]
    held = {f"{later} {earlier}" for later, earlier in schedule.after if later.stage == 0}
    assert held == {
        "0F0.2 0O0",
        "0F0.3 0O0.1",
        "0B0.3 0O0.2",
        "0L0.2 0F0.3",
        "0L0.1 0B0.3",
        "0L0 0B0.2",
    }


def test_without_offload_it_is_the_plain_pipeline_of_slices() -> None:
    assert built("sppo", p=4, m=2, k=4, ratios="0") == built("terapipe", p=4, m=2, k=4)


@pytest.mark.parametrize(("p", "k"), [(2, 4), (4, 8), (4, 1)])
def test_the_time_of_section_3(p: int, k: int) -> None:
    """T = (p - 1 + N)/N F(N), where F(N) is the work of a stage; the bubble is (p - 1)/N of it."""
    timeline = priced(built("sppo", p=p, m=1, k=k))
    assert timeline.makespan == Fraction(p - 1 + k, k) * 3
    assert timeline.work == (3,) * p
    assert timeline.makespan - 3 == Fraction(p - 1, k) * 3


def copied(p: int, k: int, **times: int) -> Fraction:
    """Makespan where a quarter of each slice is copied; F, I and W take 1 each."""
    prices = {kind: Fraction(time) for kind, time in times.items()}
    return simulate(built("sppo", p=p, m=1, k=k, ratios="1/4"), UnitCost(times=prices)).makespan


@pytest.mark.parametrize(("p", "k"), [(1, 4), (2, 4), (4, 8)])
def test_section_6_copies_back_hide_at_half_the_bandwidth(p: int, k: int) -> None:
    """A backward takes two forwards."""
    plain = Fraction(p - 1 + k, k) * 3
    assert copied(p, k, O=4, L=8) == plain
    assert copied(p, k, O=5, L=8) > plain
    assert copied(p, k, O=4, L=9) > plain


def test_its_time_is_claimed_only_where_copies_hide() -> None:
    spec = find("sppo")
    claims = {claim.quantity: claim for claim in spec.claims}
    slow = {"O": Fraction(2), "L": Fraction(2)}
    own = spec.case(2, 1, slices=4, prices=slow)
    whole = spec.case(2, 1, slices=4, options={"ratios": "1"}, prices=slow)
    assert [claims["makespan"].when(case) for case in (own, whole)] == [True, False]
    assert claims["peak"].when(whole)


def test_ratios_follow_from_the_times_of_the_copies() -> None:
    def ratio(**times: int) -> str:
        prices = {kind: Fraction(time) for kind, time in times.items()}
        schedule = build("sppo", devices=1, microbatches=1, slices=2, prices=prices)
        return str(dict(schedule.shares).get(Op("O", 0, 0), Fraction(1)))

    assert ratio() == "1"
    assert ratio(F=1, O=4) == "1/4"
    assert ratio(F=5, O=4) == "1"
    assert ratio(F=1, I=1, W=1, O=4, L=16) == "1/8"


@pytest.mark.parametrize("p", [1, 2, 4])
def test_section_10_no_device_waits_for_copies_that_fit_a_forward(p: int) -> None:
    time, peak = run(ADAPTIVE, p=p)
    assert (time, peak) == ((p - 1 + 4) * 3, 7)
    assert run("1", p=p)[0] > time


@each_case("ratios", ["0", "1/2", "1", "1/2,2/3,1,0"])
def test_section_10_keys_and_values_never_leave(ratios: str) -> None:
    schedule = built("sppo", p=2, m=1, k=4, ratios=ratios)
    alone = UnitCost(sizes={"act": Fraction(0), "kv": Fraction(1)})
    both = UnitCost(sizes={"act": Fraction(1), "kv": Fraction(1)})
    assert simulate(schedule, alone).peak == (1, 1)
    assert simulate(schedule, both).peak == tuple(1 + peak for peak in priced(schedule).peak)


def test_adaptive_ratios_remove_the_stall_of_full_offload_of_section_10() -> None:
    """Full copies lag by 4/2 - 1 and 3/2 - 1: with one slice of room compute waits for that."""
    time, peak = run(ADAPTIVE)
    assert (time, peak) == (12, 7)
    assert run("1") == (12 + 1 + Fraction(1, 2), 7)


def test_with_unlimited_room_full_offload_holds_what_lags_instead() -> None:
    """Forwards wait for nothing; but the first load waits until the copies out are done."""
    time, peak = run("1", held=False)
    assert (time, peak) == (12 + Fraction(1, 2), 9)


def test_the_simulated_levels_are_those_of_the_recursion_and_the_slice_under_way() -> None:
    ratios = offload_ratios([Fraction(size) for size in SIZES], Fraction(2))
    after = resident([Fraction(size) for size in SIZES], ratios)
    under_way = [0, *(ratio * size for ratio, size in zip(ratios, SIZES))]
    assert run(ADAPTIVE)[1] == max(map(sum, zip(after, under_way)))


def test_its_copies_stand_where_the_transform_puts_them() -> None:
    plain = built("terapipe", p=2, m=1, k=4)
    turns = {op: turn for r in range(2) for turn, op in enumerate(plain.lane(r))}
    windows = {op: Window(turn, turn + 1) for op, turn in turns.items()}
    for stage in range(2):
        for s in range(3):
            windows[Op("O", stage, 0, s)] = Window(s + 1, s + 2)
            windows[Op("L", stage, 0, s)] = Window(6 - s, 7 - s)
    general, own = add_copies(plain, windows), built("sppo", p=2, m=1, k=4, ratios="1")
    assert [general.lane(r, "copy") for r in range(2)] == [own.lane(r, "copy") for r in range(2)]
    assert {note for note in general.after if note.op.kind == "L"} <= set(own.after)


@each_case("ratios", ["2", "-1/2", "1,1,1", "x", ""])
def test_ratios_that_make_no_sense_are_refused(ratios: str) -> None:
    with pytest.raises(ShapeError) as refusal:
        built("sppo", p=2, m=1, k=4, ratios=ratios)
    assert refusal.value.hint


def ids(stage: int, of: range | None) -> set[int]:
    """Units of a stage that exactly these devices compute, for 4 devices and 8 units."""
    return {unit for unit in range(8) if members(4, 8, stage, unit) == of}


def test_the_table_of_section_8() -> None:
    every = range(4)
    left = [ids(i, range(i, 4)) for i in every]
    steady = [ids(i, range(i, i + 1)) for i in every]
    right = [ids(i, range(i + 1)) for i in every]
    assert left[:3] == [{0, 1, 2}, {0, 1}, {0}]
    assert steady == [{3, 4, 5, 6, 7}, {2, 3, 4, 5, 6}, {1, 2, 3, 4, 5}, {0, 1, 2, 3, 4}]
    assert right[1:] == [{7}, {6, 7}, {5, 6, 7}]


def forward_time(schedule: Schedule) -> Fraction:
    """When the last forward ends, in forwards of one slice."""
    times = {kind: Fraction(schedule.shape.slices[0]) for kind in "FIW"}
    spans = simulate(schedule, UnitCost(times=times)).spans()
    return max(span.end for span in spans if span.op.kind == "F")


@each_case(
    ("p", "k", "plain", "helped", "rounded"),
    [
        (2, 4, 5, Fraction(4), "4.00"),
        (4, 8, 11, Fraction(25, 3), "8.33"),
        (4, 16, 19, Fraction(49, 3), "16.33"),
        (8, 32, 39, Fraction(1194, 35), "34.11"),
    ],
)
def test_the_forward_times_of_section_8(
    p: int, k: int, plain: int, helped: Fraction, rounded: str
) -> None:
    assert forward_time(built("terapipe", p=p, m=1, k=k)) == plain
    assert forward_time(built("sppo-msp", p=p, m=1, k=k)) == helped
    assert f"{float(helped):.2f}" == rounded


@each_case(
    ("p", "k", "barriers", "rounded"),
    [
        (2, 4, Fraction(4), "4.00"),
        (4, 8, Fraction(53, 6), "8.83"),
        (4, 16, Fraction(101, 6), "16.83"),
        (8, 32, Fraction(4979, 140), "35.56"),
    ],
)
def test_section_8_the_forward_times_of_steps_that_end_together(
    p: int, k: int, barriers: Fraction, rounded: str
) -> None:
    """The claimed bound, for forwards alone."""
    assert helped_time(p, k) == barriers
    assert f"{float(barriers):.2f}" == rounded
    assert forward_time(built("sppo-msp", p=p, m=1, k=k)) <= barriers


def test_two_devices_have_no_bubble_left() -> None:
    timeline = priced(built("sppo-msp", p=2, m=1, k=4))
    assert (timeline.makespan, timeline.bubble_makespan) == (3, 0)
    assert timeline.peak == (1, 1)


def test_the_order_of_two_devices() -> None:
    schedule = built("sppo-msp", p=2, m=1, k=4)
    assert lanes(schedule) == picture("""
        0 F0    F0.1 F0.2 F0.3 f0.3 b0.3 B0.3 B0.2 B0.1 B0
        1 F0 f0 f0.1 f0.2      f0.3 b0.3 b0.2 b0.1 b0   B0
    """)
    assert [str(op) for op in schedule.gangs] == ["0F0", "1F0.3", "1B0.3", "0B0"]


@each_case(("p", "k"), [(3, 3), (4, 4), (8, 8), (5, 9)])
def test_backwards_mirror_forwards(p: int, k: int) -> None:
    schedule = built("sppo-msp", p=p, m=1, k=k)
    assert check(schedule).findings == ()
    assert priced(schedule).makespan == forward_time(schedule) * 3 / k
