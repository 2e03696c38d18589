from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loops import each
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.schedules import Case, build
from penstock.schedules.generators.group_block import block_slots
from penstock.schedules.generators.streams import alternate_split
from penstock.search._prices import cost_of
from penstock.search.exact.exact import MAKESPAN, SPAN
from penstock.search.offload.ada_offload import ada_offload, page
from penstock.search.offload.offload_plan import uniform_windows
from penstock.sim import simulate
from penstock.transform.offload import add_copies
from search.proof import proven_peaks, verified

SETTINGS = settings(max_examples=40, deadline=None)
PRICE = st.integers(1, 4).map(Fraction)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Small steps at any prices, also of copies."""
    prices = {name: draw(PRICE) for name in ("F", "I", "W", "act", "stash")}
    copies = {
        name: draw(st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(2)])) for name in "OL"
    }
    return Case(draw(st.integers(1, 4)), draw(st.integers(1, 6))).at({**prices, **copies})


@given(cases(), st.fractions(1, 4, max_denominator=2))
@SETTINGS
def test_section_5_it_keeps_to_any_limit_that_one_microbatch_keeps_to(
    case: Case, times: Fraction
) -> None:
    limit = times * max(case.act, case.stash)
    found = ada_offload(case, limit, MAKESPAN.worth)
    verified(found, cost_of(case), limit)


@given(cases(), st.integers(1, 4))
@SETTINGS
def test_no_order_of_1f1b_that_is_cut_down_to_the_limit_is_better(case: Case, times: int) -> None:
    limit = times * max(case.act, case.stash)
    found = simulate(ada_offload(case, limit, MAKESPAN.worth), cost_of(case)).makespan
    streams = [[[(kind, r, mb, 0) for mb in range(case.m)] for kind in "FB"] for r in range(case.p)]
    lanes = [
        alternate_split(*both, warmup=case.p - 1 - r, delay=0) for r, both in enumerate(streams)
    ]
    bare = Schedule.of("1f1b", build("1f1b", devices=case.p, microbatches=case.m).shape, lanes)
    paged = page(bare, case, limit, lead=0)
    assert paged is not None
    assert found <= simulate(paged, cost_of(case)).makespan


@pytest.mark.long
@each(("p", "m"), [(2, 6), (4, 8), (4, 16), (6, 12)])
@each("ratio", [Fraction(1), Fraction(1, 2), Fraction(1, 4)])
def test_section_5_never_worse_than_pipeoffload_in_the_same_memory(
    p: int, m: int, ratio: Fraction
) -> None:
    """One stage per device, all of it offloaded in slots; the limit is what that is proven to
    hold."""
    copy = Fraction(3, 2) * ratio
    case = Case(p, m).at({"O": copy, "L": copy})
    shape = Shape.even(p, m)
    lanes = [[op for _, op in lane] for lane in block_slots(shape, group=1)]
    fixed = add_copies(Schedule.of("fixed", shape, lanes), uniform_windows(shape, 1, ratio))
    limit = max(proven_peaks(fixed))
    for goal in (MAKESPAN, SPAN):
        found = ada_offload(case, limit, goal.worth)
        verified(found, cost_of(case), limit)
        assert goal.worth(simulate(found, cost_of(case))) <= goal.worth(
            simulate(fixed, cost_of(case))
        )


def test_section_5_with_several_stages_per_device_pipeoffload_is_faster_in_the_same_memory() -> (
    None
):
    copies = {"O": Fraction(3, 2), "L": Fraction(3, 2)}
    case = Case(4, 8).at(copies)
    cut = build("po-h", devices=4, microbatches=8, chunks=2)
    assert verified(cut, UnitCost(times=copies), 2).makespan == 29
    found = ada_offload(case, Fraction(2), MAKESPAN.worth)
    assert verified(found, cost_of(case), 2).makespan == Fraction(75, 2)


@pytest.mark.long
@pytest.mark.parametrize(("p", "m"), [(2, 3), (3, 6), (4, 8)])
@pytest.mark.parametrize("times", [(1, 1, 1), (3, 4, 2), (10, 11, 8)])
def test_section_5_with_much_memory_it_is_the_zero_bubble_heuristic(
    p: int, m: int, times: tuple[int, int, int]
) -> None:
    case = Case(p, m).at({kind: Fraction(time) for kind, time in zip("FIW", times)})
    limit = Fraction(2 * p)
    found = ada_offload(case, limit, SPAN.worth)
    prices = {kind: Fraction(time) for kind, time in zip("FIW", times)}
    heuristic = build("zb-auto", devices=p, microbatches=m, options={"limit": limit}, prices=prices)
    assert "O" not in found.table.kinds
    assert simulate(found, cost_of(case)).span == simulate(heuristic, cost_of(case)).span


def test_it_offloads_only_where_memory_is_short() -> None:
    case = Case(4, 8).at({"O": Fraction(1, 2), "L": Fraction(1, 2)})
    moved = {
        limit: int(ada_offload(case, Fraction(limit), SPAN.worth).table.of_kinds("O").sum())
        for limit in (2, 3, 4)
    }
    assert moved[2] > moved[3] > moved[4] == 0


def test_offloads_make_up_for_most_of_the_missing_memory() -> None:
    case = Case(4, 8).at({"O": Fraction(1, 2), "L": Fraction(1, 2)})
    without = build("zb-auto", devices=4, microbatches=8, options={"limit": 2})
    found = ada_offload(case, Fraction(2), SPAN.worth)
    assert simulate(without).span == 51
    assert simulate(found, cost_of(case)).span == 30


@pytest.mark.parametrize("group", [2, 4])
def test_devices_that_share_a_channel_copy_one_at_a_time(group: int) -> None:
    case = Case(4, 6).at({"O": Fraction(1), "L": Fraction(1)})
    channels = [range(first, first + group) for first in range(0, 4, group)]
    found = ada_offload(case, Fraction(2), MAKESPAN.worth, channels)
    assert "O" in found.table.kinds
    verified(found, cost_of(case), 2, channels)


def test_no_room_for_one_microbatch_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"no order keeps 2 devices within 0\.5"):
        ada_offload(Case(2, 2), Fraction(1, 2), MAKESPAN.worth)


def test_a_page_moves_what_is_needed_last() -> None:
    lanes = [
        [("F", 0, mb, 0) for mb in range(3)] + [(k, 0, mb, 0) for mb in range(3) for k in "IW"]
    ]
    bare = Schedule.of("all first", build("1f1b", devices=1, microbatches=3).shape, lanes)
    paged = page(bare, Case(1, 3), Fraction(2), lead=0)
    assert paged is not None
    assert " ".join(map(str, paged.lane(0, "copy"))) == "0O1 0L1"
    assert proven_peaks(paged) == [2]
