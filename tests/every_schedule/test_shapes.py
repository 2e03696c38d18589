"""Random requests: what fits is proven and keeps its claims, what does not is refused in words."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from every_schedule.cases import PRICES, broken_claims, name_of, priced, specs
from loops import one_in
from penstock.check import check
from penstock.errors import ShapeError
from penstock.schedules import Case, Option, Spec


@st.composite
def requests(draw: st.DrawFn, spec: Spec) -> dict[str, Any]:
    """Arguments of `Spec.case`, most of them inside what the schedule takes."""
    chunks = st.integers(1, 3) if spec.chunks is None else st.just(spec.chunks)
    slices = st.integers(1, 4) if spec.sliced else st.just(1)
    # What is no whole number has no range to draw from; the record's cases try it.
    counts = [option.name for option in spec.options if option.least is not None]
    options = {name: st.one_of(st.none(), st.integers(1, 9)) for name in counts}
    return {
        "devices": draw(st.integers(1, 5)),
        "microbatches": draw(st.integers(1, 9)),
        "chunks": draw(st.none() | chunks),
        "slices": draw(st.none() | slices),
        "options": draw(st.fixed_dictionaries(options)),
    }


SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much])


@pytest.mark.parametrize("spec", specs(), ids=name_of)
@settings(SETTINGS, max_examples=8)
@given(data=st.data())
def test_a_request_inside_the_needs_is_proven_and_keeps_its_claims(
    spec: Spec, data: st.DataObject
) -> None:
    _prove(spec, data)


@pytest.mark.parametrize("spec", one_in(2, specs()), ids=name_of)
@settings(SETTINGS, max_examples=40)
@given(data=st.data())
def test_many_requests_inside_the_needs_are_proven_and_keep_their_claims(
    spec: Spec, data: st.DataObject
) -> None:
    _prove(spec, data)


def _prove(spec: Spec, data: st.DataObject) -> None:
    case = _answer(spec, data.draw(requests(spec)))
    assume(isinstance(case, Case))
    assert isinstance(case, Case)
    schedule = spec.build(case)
    assert check(schedule).findings == ()
    prices = data.draw(st.sampled_from(PRICES))
    assert list(broken_claims(spec, schedule, priced(case, prices))) == []


@pytest.mark.parametrize("spec", specs(), ids=name_of)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_request_is_served_or_refused_with_a_sentence_and_a_hint(
    spec: Spec, data: st.DataObject
) -> None:
    wild = st.one_of(st.none(), st.integers(-2, 40), st.sampled_from([10**9, "x", 1.5]))
    numbers = st.one_of(st.integers(-2, 12), st.just(10**9))
    names = [option.name for option in spec.options] + ["limit"]
    request = {
        "devices": data.draw(numbers),
        "microbatches": data.draw(numbers),
        "chunks": data.draw(st.none() | numbers),
        "slices": data.draw(st.none() | numbers),
        "options": data.draw(st.dictionaries(st.sampled_from(names), wild, max_size=2)),
    }
    answer = _answer(spec, request)
    if isinstance(answer, ShapeError):
        assert answer.message
        assert answer.hint
        assert "{" not in str(answer)
    else:
        assert all(need.holds(answer) for need in spec.needs)


def _answer(spec: Spec, request: dict[str, Any]) -> Case | ShapeError:
    try:
        return spec.case(**request)
    except ShapeError as refusal:
        return refusal


def _small_world(spec: Spec) -> Iterator[Case]:
    """All small requests with their options, whether they fit or not, at equal prices first."""
    chunks = range(1, 4) if spec.chunks is None else [spec.chunks]
    slices = range(1, 4) if spec.sliced else [1]
    values = product(*(_values(spec, option) for option in spec.options))
    sizes = list(product(range(1, 5), range(1, 8), chunks, slices, values))
    for prices, (p, m, v, k, given_) in product(PRICES, sizes):
        chosen = zip(spec.options, given_)
        options = {option.name: option.read(spec.name, value) for option, value in chosen}
        yield priced(Case(p, m, v, k, options), prices)


def _values(spec: Spec, option: Option[Any]) -> Iterable[Any]:
    """Small numbers, or what an option is by default that reads words."""
    try:
        option.read(spec.name, 1)
    except ShapeError:
        return [option.default(spec.cases[0])]
    return range(1, 8)


@pytest.mark.parametrize(
    ("spec", "number"),
    [(spec, number) for spec in specs() for number in range(len(spec.needs))],
    ids=name_of,
)
def test_a_request_outside_a_need_is_refused_in_its_words(spec: Spec, number: int) -> None:
    need = spec.needs[number]
    outside = next(case for case in _small_world(spec) if not need.holds(case))
    prices = {name: getattr(outside, name) for name in PRICES[0]}
    with pytest.raises(ShapeError) as refusal:
        spec.case(outside.p, outside.m, outside.v, outside.k, outside.options, prices)
    assert refusal.value.message.startswith(f"{spec.name} {outside}: it needs that ")
    assert need.text in refusal.value.message
    assert need.advice(outside) in refusal.value.hint
