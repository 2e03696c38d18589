"""The ranking: never worse than what is registered, robust against records that hang or fail."""

import time
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from clock import within
from loops import one_of
from penstock.check import check
from penstock.core.shape import Shape
from penstock.draw.words import number
from penstock.errors import ShapeError
from penstock.schedules import Case, Claim, Spec, registry
from penstock.search.best import best as module
from penstock.search.best import contenders
from penstock.search.best.best import SEARCHED, best
from penstock.search.best.request import Wanted
from penstock.search.best.time_limit import Attempt
from penstock.search.joint.joint import Effort
from penstock.sim import simulate
from schedules.picture import built, priced
from search.best_table import ROOT, cutting, ranked, registered, rows, searched
from search.pipelines import HEAVY_HEAD

pytestmark = pytest.mark.processes  # records that search are asked in processes of their own


def quick(wanted: Wanted) -> Wanted:
    """The same with a time that decides nothing, so that the answer is the same everywhere."""
    return replace(wanted, seconds=10_000.0)


@pytest.mark.parametrize(
    ("case", "layers", "limit"),
    one_of(
        3,
        [
            (Case(3, 5, k=3, hop=Fraction(1, 4)), "5*1,2", Fraction(7)),
            (Case(4, 8, k=4), "", None),
            (Case(4, 8), HEAVY_HEAD, Fraction(24)),
            (Case(2, 4, F=Fraction(2), stash=Fraction(1, 2)), "", Fraction(2)),
            (Case(1, 3), "", None),
        ],
    ),
    ids=str,
)
def test_the_search_never_loses_and_what_it_finds_is_proven(
    case: Case, layers: str, limit: Fraction | None
) -> None:
    wanted = quick(replace(Wanted.of(replace(case, k=1), layers, limit), slices=case.k))
    ranking = best(wanted)
    found = searched(ranking)
    assert ranking.bound <= found.time <= registered(ranking).time
    assert {entry.slices for entry in ranking.entries} == set(wanted.counts)
    for entry in ranking.entries:
        timeline = simulate(entry.schedule, wanted.cost)
        assert check(entry.schedule).proven
        assert (timeline.makespan, max(timeline.peak)) == (entry.time, entry.peak)
        assert limit is None or entry.peak <= limit
    times = [entry.time for entry in ranking.entries]
    assert times == sorted(times)


def test_recomputation_is_compared_and_then_memory_bounds_nothing() -> None:
    """At half the memory of 1F1B, chronos that recomputes is within the limit."""
    ranking = best(quick(Wanted.of(Case(4, 4), "", Fraction(2))))
    assert any(entry.label.startswith("chronos-recompute") for entry in ranking.entries)
    assert ranking.reason != "memory"


def test_what_is_sent_is_counted() -> None:
    ranking = best(quick(Wanted.of(Case(4, 8), HEAVY_HEAD, Fraction(24))))
    in_a_row = next(entry for entry in ranking.entries if entry.label == "1f1b")
    assert in_a_row.sent == 2 * 3 * 8


@pytest.mark.matrix
def test_every_value_of_an_option_is_compared() -> None:
    wanted = replace(Wanted.of(Case(2, 7)), seconds=4.0)
    labels = {entry.label for entry in best(wanted).entries}
    assert {"kfkb -o group=5", "kfkb -o group=6"} <= labels
    assert {"interleaved -v 2 -o group=5", "interleaved -v 3 -o group=5"} <= labels


def test_what_is_ahead_of_the_search_becomes_its_start() -> None:
    wanted = Wanted.of(Case(4, 8), HEAVY_HEAD, Fraction(24))
    registered = priced(built("adaptis", p=4, m=8, v=3, layers=HEAVY_HEAD, limit=24)).makespan
    problem = wanted.problem()
    sketch = contenders.sketch_search(wanted)
    (start,) = module.leading_orders(problem, [], [], sketch)
    (again,) = module.search_entries(wanted, problem, Effort(0), [start])
    assert again.time <= registered
    assert module.leading_orders(problem, [again], [], sketch) == []
    behind = again._replace(time=registered + 1)
    assert module.leading_orders(problem, [behind], [], sketch)[0].split == start.split


EVERY_DAY = 2
"""Cases of the page in every run of the tests; the matrix takes every second of the others."""


def _marks(number: int) -> list[pytest.MarkDecorator]:
    if number < EVERY_DAY:
        return []
    return [pytest.mark.matrix, *([pytest.mark.exhaustive] if number % 2 else [])]


def test_the_page_has_a_dozen_cases() -> None:
    assert len(rows()) >= 12


@pytest.mark.parametrize(
    ("command", "recorded"),
    [pytest.param(*row, marks=_marks(number), id=row[0]) for number, row in enumerate(rows())],
)
def test_on_recorded_layers_the_search_beats_every_registered_schedule(
    command: str, recorded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    ranking = ranked(command)
    assert searched(ranking).time < registered(ranking).time
    assert searched(ranking).time < cutting(command)
    found = [number(searched(ranking).time), number(ranking.bound)]
    assert found == [recorded[1], recorded[3]], "python tests/search/best_table.py writes it anew"


def slow(shape: Shape, case: Case) -> Any:
    time.sleep(600)


def failing(shape: Shape, case: Case) -> Any:
    raise ShapeError("never", hint="ask another one")


def test_records_that_hang_or_fail_do_not_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = Claim("peak", "1", lambda c: (c.act,) * c.p, "nowhere")
    bad = [
        Spec(
            generate,
            name=name,
            title="no schedule",
            paper="none",
            cases=(Case(1, 1),),
            priced=True,
            claims=(claim,),
        )
        for name, generate in (("slow", slow), ("failing", failing))
    ]
    known = {**{s.name: s for s in bad}, "1f1b": registry()["1f1b"]}
    monkeypatch.setattr(contenders, "registry", lambda: known)
    ranking = best(replace(Wanted.of(Case(2, 3)), seconds=2.0))
    assert {entry.label for entry in ranking.entries} == {SEARCHED, "1f1b"}
    assert (ranking.passed_over, ranking.late) == ([], ["slow"])


@pytest.mark.matrix
def test_a_deep_pipeline_takes_less_than_15_seconds_of_a_processor() -> None:
    with within(15):
        ranking = best(Wanted.of(Case(16, 64), "62*1,4@0", Fraction(64)))
    assert searched(ranking).time <= registered(ranking).time


def test_work_that_takes_too_long_is_given_up() -> None:
    assert Attempt(lambda: time.sleep(60)).answer(0.05) is None
    assert Attempt(lambda: 7).answer(30.0) == 7
