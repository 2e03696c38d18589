import sys
from fractions import Fraction

import pytest

from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.schedules import Case, build
from penstock.search._prices import cost_of
from penstock.search.exact.exact import MAKESPAN, solve
from penstock.search.offload.ada_offload import ada_offload
from penstock.sim import simulate
from search.proof import verified

pytest.importorskip("ortools", reason="needs the extra `solve`")

COPY = {"O": Fraction(1, 2), "L": Fraction(1, 2)}


def searched(case: Case, **options: int) -> Schedule:
    prices = {"F": case.F, "I": case.I, "W": case.W, **case.others}
    return build("optpipe", devices=case.p, microbatches=case.m, options=options, prices=prices)


@pytest.mark.parametrize(
    ("limit", "found"), [(1, Fraction(18)), (2, Fraction(15)), (3, Fraction(14)), (5, Fraction(14))]
)
def test_small_steps_are_solved(limit: int, found: Fraction) -> None:
    case = Case(3, 4).at(COPY)
    schedule = searched(case, limit=limit, effort=500)
    assert verified(schedule, cost_of(case), limit).makespan == found


@pytest.mark.long
@pytest.mark.parametrize("times", [(1, 1, 1), (3, 4, 2), (1, 2, 3)])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_result_is_never_worse_than_its_start(limit: int, times: tuple[int, int, int]) -> None:
    case = Case(4, 6).at({**COPY, **{k: Fraction(t) for k, t in zip("FIW", times)}})
    start = ada_offload(case, Fraction(limit), MAKESPAN.worth)
    schedule = searched(case, limit=limit)
    found = verified(schedule, cost_of(case), limit).makespan
    assert found <= simulate(start, cost_of(case)).makespan


@pytest.mark.long
@pytest.mark.parametrize(
    ("p", "m", "limit", "begun", "found", "bound"),
    [(3, 4, 2, 16, 15, 15), (4, 4, 2, 18, 17, 17), (4, 8, 2, 30, 29, 27), (4, 8, 3, 30, 30, 27)],
)
def test_section_3_what_the_solver_adds_to_the_heuristic(
    p: int, m: int, limit: int, begun: int, found: int, bound: int
) -> None:
    case = Case(p, m).at(COPY)
    start = ada_offload(case, Fraction(limit), MAKESPAN.worth)
    offloads = {op: Fraction(1) for op in start.table.ops() if op.kind == "F"}
    solution = solve(start, cost_of(case), limit=Fraction(limit), offloads=offloads, effort=0.2)
    assert simulate(start, cost_of(case)).makespan == begun
    assert (solution.value, solution.bound) == (found, bound)


@pytest.mark.long
def test_effort_pays() -> None:
    case = Case(4, 8).at(COPY)
    quick, thorough = (searched(case, limit=3, effort=effort) for effort in (1, 100))
    assert simulate(quick, cost_of(case)).makespan == 30
    assert verified(thorough, cost_of(case), 3).makespan == 28


@pytest.mark.long
def test_the_same_request_gives_the_same_order() -> None:
    case = Case(3, 5).at(COPY)
    assert searched(case, limit=2, effort=20) == searched(case, limit=2, effort=20)


@pytest.mark.parametrize("sharing", [2, 4])
def test_copies_respect_a_shared_channel(sharing: int) -> None:
    case = Case(4, 4).at({"O": Fraction(1), "L": Fraction(1)})
    schedule = searched(case, limit=2, sharing=sharing, effort=20)
    channels = [range(first, first + sharing) for first in range(0, 4, sharing)]
    assert "O" in schedule.table.kinds
    verified(schedule, cost_of(case), 2, channels)


def test_without_the_solver_it_is_refused_with_the_name_of_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(ShapeError) as caught:
        build("optpipe", devices=1, microbatches=1)
    assert "penstock[solve]" in caught.value.hint


@pytest.mark.parametrize("effort", [0, -1, 10**9, "long", 1.5])
def test_an_effort_without_sense_is_refused(effort: object) -> None:
    with pytest.raises(ShapeError, match="effort"):
        build("optpipe", devices=2, microbatches=2, options={"effort": effort})


def test_a_limit_below_one_microbatch_is_refused_at_the_sizes_of_the_request() -> None:
    with pytest.raises(ShapeError, match="limit is at least act"):
        build(
            "optpipe",
            devices=2,
            microbatches=2,
            options={"limit": 2},
            prices={"act": Fraction(3)},
        )
