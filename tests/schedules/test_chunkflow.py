from fractions import Fraction
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loops import each_case
from penstock.check import check
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.plan import pack
from penstock.schedules import find
from penstock.transform import weigh_slices
from schedules.picture import built, lanes, picture, priced

NAMES = ("chunkflow", "chunkflow-paced")


def grouped(
    name: str, p: int, groups: list[int], retain: int | None = None, warmup: int = 1
) -> Schedule:
    """Sequences of so many slices; where it is not said, all are kept."""
    text, longest = ",".join(map(str, groups)), max(groups)
    kept = longest if retain is None else min(retain, longest)
    return built(name, p=p, m=len(groups), groups=text, retain=kept, warmup=warmup)


def of_lengths(lengths: list[int], size: int, retain: int, warmup: int = 1) -> Schedule:
    """Packed sequences on four devices."""
    packed = pack(lengths, size).lengths
    text = ",".join(map(str, packed))
    return built("chunkflow", p=4, m=len(packed), groups=text, retain=retain, warmup=warmup)


def test_the_order_of_section_6() -> None:
    assert lanes(of_lengths([4, 2, 1, 1], 2, retain=2)) == picture("""
        0 F0 F1 F2 F2.1 B0 B1   B2.1 B2
        1 F0 F1 F2 B0 F2.1 B1   B2.1 B2
        2 F0 F1 B0 F2   B1 F2.1 B2.1 B2
        3 F0 B0 F1 B1   F2 F2.1 B2.1 B2
    """)


def test_section_4_one_kept_slice_runs_the_other_again_right_before_its_backward() -> None:
    assert lanes(of_lengths([4, 2, 1, 1], 2, retain=1)) == picture("""
        0 F0 F1 N2 F2.1 B0 B1   B2.1 R2 B2
        1 F0 F1 N2 B0 F2.1 B1   B2.1 R2 B2
        2 F0 F1 B0 N2   B1 F2.1 B2.1 R2 B2
        3 F0 B0 F1 B1   N2 F2.1 B2.1 R2 B2
    """)


@pytest.mark.parametrize("order", [[4, 2, 1, 1], [4, 1, 2, 1]])
def test_section_6_1f1b_over_whole_sequences_is_four_sevenths_idle(order: list[int]) -> None:
    whole = weigh_slices(built("1f1b", p=4, m=4), [[Fraction(length)] for length in order])
    timeline = priced(whole)
    assert (timeline.makespan, timeline.bubble_makespan) == (56, Fraction(4, 7))
    assert priced(built("1f1b", p=4, m=4)).bubble_makespan == Fraction(3, 7)


@each_case(
    ("size", "retain", "warmup", "makespan", "bubble"),
    [
        (2, 2, 1, 46, Fraction(11, 23)),
        (2, 1, 1, 48, Fraction(11, 24)),
        (4, 1, 1, 60, Fraction(3, 5)),
        (2, 2, 2, 42, Fraction(3, 7)),
        (2, 1, 2, 44, Fraction(9, 22)),
    ],
)
def test_the_ratios_of_section_6(
    size: int, retain: int, warmup: int, makespan: int, bubble: Fraction
) -> None:
    """Times are those of a token: 1 forward, 2 backward."""
    schedule = of_lengths([4, 2, 1, 1], size, retain, warmup)
    timeline = priced(schedule, (size, size, size))
    assert (timeline.makespan, timeline.bubble_makespan) == (makespan, bubble)


def test_section_6_recomputation_counted_as_waste_makes_it_half_idle() -> None:
    timeline = priced(of_lengths([4, 2, 1, 1], 2, retain=1), (2, 2, 2))
    assert 1 - 4 * Fraction(2 + 4) / timeline.makespan == Fraction(1, 2)


def test_section_6_a_long_sequence_in_front_stalls_devices_that_stay_ahead() -> None:
    groups = [8] + [1] * 8
    assert priced(grouped("chunkflow", 4, groups)).makespan == 129
    assert priced(grouped("chunkflow", 4, groups, warmup=8)).makespan == 57
    paced = priced(grouped("chunkflow-paced", 4, groups))
    assert (paced.makespan, paced.peak) == (60, (8, 8, 8, 8))


@pytest.mark.parametrize("name", NAMES)
def test_section_6_the_price_of_a_longer_warm_up_is_memory(name: str) -> None:
    groups = [1] * 8 + [8]
    paper = priced(grouped(name, 4, groups, retain=2))
    assert (paper.makespan, paper.peak) == (69, (4, 3, 2, 2))
    longer = priced(grouped(name, 4, groups, retain=2, warmup=8))
    assert (longer.makespan, longer.peak) == (63, (9, 9, 9, 8))


@each_case("name", NAMES)
@each_case("slices", [1, 2, 5, 8])
@each_case("retain", [1, 2, 3, 8])
def test_section_9_one_device_holds_the_kept_slices_of_one_sequence(
    name: str, slices: int, retain: int
) -> None:
    timeline = priced(grouped(name, 1, [slices], retain))
    assert timeline.peak == (min(slices, retain),)
    assert timeline.makespan == 3 * slices + max(0, slices - retain)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(1, 4), st.integers(1, 4))
def test_section_9_what_is_not_kept_runs_forward_twice(
    groups: list[int], p: int, retain: int
) -> None:
    for name in NAMES:
        kinds = [op.kind for op in grouped(name, p, groups, retain).lane(0)]
        again = sum(max(0, slices - retain) for slices in groups)
        assert (kinds.count("R"), kinds.count("N")) == (again, again)
        assert (kinds.count("B"), kinds.count("F")) == (sum(groups), sum(groups) - again)


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=7),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(1, 6),
)
def test_falling_back_in_step_is_never_slower_and_never_holds_more(
    groups: list[int], p: int, retain: int, warmup: int
) -> None:
    eager, paced = (
        priced(grouped(name, p, groups, retain, min(warmup, max(groups)))) for name in NAMES
    )
    assert paced.makespan <= eager.makespan
    assert all(one <= other for one, other in zip(paced.peak, eager.peak))


@pytest.mark.parametrize("p", [1, 2, 4])
def test_memory_does_not_grow_with_the_longest_sequence(p: int) -> None:
    for retain in (1, 2):
        peaks = {
            priced(grouped("chunkflow-paced", p, [1, 1, slices, 1], retain)).peak
            for slices in (8, 16, 64)
        }
        assert len(peaks) == 1


@each_case("p", [1, 2, 4])
@each_case(
    ("name", "before", "behind"),
    [("chunkflow", 4, 0), ("chunkflow", 1, 0), *(("chunkflow-paced", a, 9) for a in (0, 1, 4))],
)
def test_section_8_only_keys_and_values_grow_with_the_longest_sequence(
    name: str, before: int, behind: int, p: int
) -> None:
    sizes = {"act": 1, "kv": 1}
    found = {
        slices: priced(grouped(name, p, [1] * before + [slices] + [1] * behind, 2), sizes=sizes)
        for slices in (8, 16, 64)
    }
    assert len({tuple(peak - n for peak in line.peak) for n, line in found.items()}) == 1


@pytest.mark.parametrize("slices", [8, 16])
def test_devices_that_stay_ahead_of_short_sequences_hold_as_many_as_a_long_one_has(
    slices: int,
) -> None:
    """The exception, where short sequences follow: each backward lets one more of them in."""
    groups = [slices] + [1] * 20
    assert priced(grouped("chunkflow", 4, groups, retain=2)).peak == (slices,) * 4
    assert priced(grouped("chunkflow-paced", 4, groups, retain=2)).peak == (4, 3, 2, 2)


@pytest.mark.parametrize("name", NAMES)
def test_microbatches_of_one_slice_are_1f1b(name: str) -> None:
    order = [built("1f1b", p=4, m=6).lane(r) for r in range(4)]
    assert [grouped(name, 4, [1] * 6).lane(r) for r in range(4)] == order


def test_the_last_slice_of_a_sequence_may_be_short() -> None:
    schedule = of_lengths([5, 1], 2, retain=2)
    assert schedule.shape.slices == (1, 3)
    assert schedule.shape.slice_share == ((Fraction(1, 2),), (1, 1, Fraction(1, 2)))


def swapped(schedule: Schedule, device: int, *swaps: tuple[str, str]) -> Schedule:
    """The schedule with ops of one lane exchanged, in the letters of a picture."""
    ops = {device: schedule.lane(device)}
    for one, other in swaps:
        names = lanes(schedule)[device][1:]
        first, second = names.index(one), names.index(other)
        ops[device][first], ops[device][second] = ops[device][second], ops[device][first]
    rows = [ops.get(r, schedule.lane(r)) for r in range(schedule.shape.devices)]
    return Schedule.of("swapped", schedule.shape, rows)


def rules(schedule: Schedule) -> set[str]:
    return {finding.rule for finding in check(schedule).findings}


def test_section_9_an_ascending_third_phase_is_rejected() -> None:
    schedule = grouped("chunkflow", 1, [3], retain=1)
    assert lanes(schedule) == picture("0 N0 N0.1 F0.2 B0.2 R0.1 B0.1 R0 B0")
    wrong = swapped(schedule, 0, ("R0.1", "R0"), ("B0.1", "B0"))
    assert "slice-order" in rules(wrong)


def test_section_9_a_backward_before_the_whole_sequence_went_forward_is_rejected() -> None:
    assert rules(swapped(grouped("chunkflow", 1, [2]), 0, ("F0.1", "B0.1")))
    assert "slice-order" in rules(swapped(grouped("chunkflow", 1, [2]), 0, ("F0.1", "B0")))


def test_section_9_a_missing_backward_which_would_relay_key_value_gradients_is_rejected() -> None:
    """A relay that is empty though the op runs shows in gradients (verify/test_unequal_batches)."""
    schedule = grouped("chunkflow", 1, [2])
    rows = [[op for op in schedule.lane(0) if op != Op("B", 0, 0, 1)]]
    assert "complete" in rules(Schedule.of("cut", schedule.shape, rows))


@each_case("groups", ["1,1", "1,x", "0,1,1", "-1,1,1", "", "1/0,1,1"])
def test_groups_that_disagree_or_cannot_be_read_are_refused(groups: str) -> None:
    with pytest.raises(ShapeError) as refusal:
        find("chunkflow").case(2, 3, options={"groups": groups})
    assert refusal.value.hint


def test_backwards_of_a_microbatch_wait_for_its_last_slice() -> None:
    groups = [3, 1, 2]
    complete = list(accumulate(groups))
    for name in NAMES:
        for lane in (grouped(name, 3, groups, retain=1).lane(r) for r in range(3)):
            for place, op in enumerate(lane):
                if op.kind == "B":
                    forwards = sum(earlier.kind in "FN" for earlier in lane[:place])
                    assert forwards >= complete[op.mb]
