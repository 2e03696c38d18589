from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.check import check
from penstock.core.ops import Op
from penstock.core.schedule import After, Schedule
from penstock.core.shape import Shape
from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.sim import simulate
from penstock.transform import add_copies, offload_stages, recompute_all, take_turns
from penstock.transform.offload import TAKING, Window
from search.proof import overlapping, proven_peaks
from transform.pictures import draw, lanes, ops, picture
from transform.samples import offloaded
from transform.test_every_schedule import built


def test_the_copies_of_a_stage_stand_beside_its_lane() -> None:
    schedule = offload_stages(build("gpipe", devices=2, microbatches=3), {0}, lead=1)
    assert lanes(schedule) == picture("""
        0       F0 F1 F2 B0 B1 B2
        0 copy  O0 O1 L0 O2 L1 L2
        1       F0 F1 F2 B0 B1 B2
    """)
    assert schedule.after == (
        After(*ops("0L0 0F1")),
        After(*ops("0L1 0F2")),
        After(*ops("0L2 0B0")),
        After(*ops("0F2 0O0")),
    )
    # While F2 runs, either F1 is still here or, behind O1 on the copy lane, F0 on its way back.
    assert proven_peaks(schedule) == [2, 3]


def test_what_comes_back_soon_stays() -> None:
    base = build("1f1b", devices=4, microbatches=8)
    schedule = offload_stages(base, {0, 1, 2, 3}, lead=2)
    moved = sorted({op.stage for op in schedule.table.ops() if op.kind == "O"})
    assert moved == [0, 1]
    assert offload_stages(base, {3}) == base


def test_offloading_the_longest_lived_lowers_the_peak() -> None:
    base = build("gpipe", devices=2, microbatches=8)
    schedule = offload_stages(base, {0}, lead=1)
    assert proven_peaks(base) == [8, 8]
    assert proven_peaks(schedule) == [2, 8]
    copies = UnitCost(times={"O": Fraction(1), "L": Fraction(1)})
    assert simulate(schedule, copies).peak == (2, 8)
    assert simulate(schedule, copies).makespan == simulate(base).makespan


def test_a_share_frees_its_part_in_its_part_of_the_time() -> None:
    base = build("gpipe", devices=1, microbatches=6)
    schedule = offload_stages(base, {0}, lead=1, share=Fraction(1, 2))
    assert {share for _, share in schedule.shares} == {Fraction(1, 2)}
    whole = offload_stages(base, {0}, lead=1)
    assert proven_peaks(whole)[0] < proven_peaks(schedule)[0] < proven_peaks(base)[0]
    spans = simulate(schedule, UnitCost(times={"O": Fraction(1)})).spans()
    assert {span.end - span.start for span in spans if span.op.kind == "O"} == {Fraction(1, 2)}


def test_an_annotated_order_is_kept() -> None:
    base = draw(
        "0  0F0 1F0 0F1 1B0 1F1 0B0 1B1 0B1",
        Shape(1, 2, (1, 1)),
        pairs=(ops("0F1 1B0"), ops("1F1 0B0")),
        after=(After(*ops("1B1 0B0")),),
    )
    schedule = offload_stages(base, {0}, lead=1)
    assert schedule.pairs == base.pairs
    assert schedule.after[0] == base.after[0]
    assert " ".join(map(str, schedule.lane(0, "copy"))) == "0O0 0L0 0O1 0L1"
    assert check(schedule).findings == ()


def test_devices_of_a_channel_take_turns() -> None:
    base = offload_stages(build("gpipe", devices=2, microbatches=5), {0, 1}, lead=1)
    cost = UnitCost(times={"O": Fraction(1), "L": Fraction(1)})
    run = simulate(base, cost)
    assert overlapping(run, {0, 1})
    windows = {span.op: Window(span.start, span.end) for span in run.spans()}
    shared = simulate(take_turns(base, windows, [{0, 1}]), cost)
    assert not overlapping(shared, {0, 1})
    duplex = take_turns(
        take_turns(base, windows, [{0, 1}], kinds="O"), windows, [{0, 1}], kinds="L"
    )
    both_ways = simulate(duplex, cost)
    assert not overlapping(both_ways, {0, 1}, "O")
    assert not overlapping(both_ways, {0, 1}, "L")
    assert both_ways.makespan < shared.makespan


def test_kinds_that_take_memory_follow_from_the_meaning_table() -> None:
    """S among them: logits live until T."""
    assert sorted(TAKING) == ["F", "L", "N", "R", "S"]


SETTINGS = settings(deadline=None, max_examples=80)
TIMES = st.sampled_from([Fraction(0), Fraction(1, 3), Fraction(1), Fraction(5)])


def offloads(base: Schedule) -> Iterator[Schedule]:
    for lead in (1, 2, 3):
        yield offload_stages(base, range(base.shape.stages), lead=lead)


@pytest.mark.long
@given(built(), st.data())
@SETTINGS
def test_any_schedule_can_be_offloaded_and_its_memory_is_proven(
    base: Schedule, data: st.DataObject
) -> None:
    assume("copy" not in base.table.lane_stream and not base.gangs)
    schedule = data.draw(st.sampled_from(list(offloads(base))))
    assert check(schedule).findings == ()
    lengths = {op: data.draw(TIMES) for op in dict.fromkeys(schedule.table.ops())}
    peaks = simulate(schedule, UnitCost(op_times=lengths)).peak
    assert all(peak <= most for peak, most in zip(peaks, proven_peaks(schedule)))


def test_copies_and_ops_that_take_no_time_hold_no_more_than_is_proven() -> None:
    """All of them stand at one moment, and are there one after the other all the same."""
    base = build("chronos-ahead", devices=1, microbatches=2)
    schedule = offload_stages(base, range(base.shape.stages), lead=2)
    still = UnitCost(op_times=dict.fromkeys(schedule.table.ops(), Fraction(0)))
    assert [*simulate(schedule, still).peak] == proven_peaks(schedule) == [Fraction(1, 2)]


def test_forwards_that_keep_only_their_input_are_left_alone() -> None:
    base = recompute_all(build("gpipe", devices=2, microbatches=4))
    assert offload_stages(base, {0, 1}) == base


@pytest.mark.parametrize(
    ("stages", "lead", "words"),
    [({2}, 2, "stage 2 cannot be offloaded"), ({0}, 0, "in the time of 0 ops")],
)
def test_requests_without_sense_are_refused(stages: set[int], lead: int, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        offload_stages(build("gpipe", devices=2, microbatches=2), stages, lead=lead)


def test_what_several_devices_hold_is_not_offloaded() -> None:
    with pytest.raises(ShapeError, match="sppo-msp has gangs, as 0F0"):
        offload_stages(build("sppo-msp", devices=2, microbatches=1, slices=2), {0})


def test_copies_are_added_once() -> None:
    with pytest.raises(ShapeError, match="has copies already"):
        offload_stages(offloaded(), {0}, lead=1)


def test_a_copy_of_an_activation_that_nobody_keeps_is_refused() -> None:
    base = recompute_all(build("gpipe", devices=1, microbatches=2))
    windows = {op: Window(n, n + 1) for n, op in enumerate(base.lane(0))}
    with pytest.raises(ShapeError, match=r"0O0 moves the activation of 0F0, which is in no lane"):
        add_copies(base, {**windows, Op("O", 0, 0): Window(1, 2)})
