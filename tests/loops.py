"""Many cases in one test: the loop goes on after a failure and tells all of them with their place.

A test for each of a thousand cases is a thousand things to collect, set up and report. One test
that loops costs the cases alone, as long as one failure does not hide the others:

    with all_cases() as case:
        for value in (0, -1, "many"):
            with case(name, value):
                assert refused(name, value)

    @each("name", list(registry()))         every value of an argument; may be stacked
    @each_case("p", range(1, 17))           the same; in the quick tier the first of them alone
    @looped("schedule", {"1f1b": cases})    cases that are made when the test runs

Where a case takes seconds, `one_of(4, cases)` are parameters for pytest of which every fourth is
tried in every run of the tests, and the matrix tries the others. Where all of them take minutes,
`one_in(2, cases)` are every second one for the matrix; `make exhaustive` tries the rest.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from itertools import islice
from typing import Any

import pytest

Place = Callable[..., AbstractContextManager[None]]
Cases = Callable[[], Iterable[tuple[str, Any]]]
"""Makes labels and cases when it is called, not when tests are collected."""
Decorator = Callable[[Callable[..., None]], Any]
Labelled = Iterator[tuple[str, dict[str, Any]]]
"""Where a case is, and the arguments that a test gets for it."""


@contextmanager
def all_cases() -> Iterator[Place]:
    """Collect what fails in each `with case(*place)` and raise all of it at the end.

    A case that is skipped leaves the others as they are; where all are, so is the test.
    """
    failures: list[BaseException] = []
    skips: list[BaseException] = []
    count = 0

    @contextmanager
    def case(*place: object) -> Iterator[None]:
        nonlocal count
        count += 1
        try:
            yield
        except pytest.skip.Exception as skip:
            skips.append(skip)
        except (Exception, pytest.fail.Exception, BaseExceptionGroup) as failure:
            failure.add_note(f"case: {', '.join(map(str, place))}")
            failures.append(failure)

    yield case
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {count} cases failed", failures)
    assert count, "the loop had no case, so it proves nothing"
    if len(skips) == count:
        raise skips[0]


def each(arguments: str | Sequence[str], values: Iterable[Any], ids: Any = None) -> Decorator:
    """As `pytest.mark.parametrize`, in one test."""
    return _loop(_names(arguments), lambda _: _labelled(arguments, values, ids))


def each_case(arguments: str | Sequence[str], values: Iterable[Any], ids: Any = None) -> Decorator:
    """As `each`, for values that are cases of one schedule: the quick tier takes the first."""
    return _loop(
        _names(arguments),
        lambda first: islice(_labelled(arguments, values, ids), 1 if first else None),
    )


def looped(argument: str, groups: Mapping[str, Cases]) -> Decorator:
    """Call a test with `argument` set to each case of each group in turn; in the quick tier to the
    first case of each group."""

    def cases(first: bool) -> Labelled:
        for group, make in groups.items():
            for label, value in islice(make(), 1 if first else None):
                yield f"{group}, {label}", {argument: value}

    return _loop((argument,), cases)


def one_of(few: int, cases: Iterable[tuple[Any, ...]], every: int = 1) -> list[Any]:
    """Parameters of a test, one of `few` for every run of the tests and the others for the matrix,
    or of these every so many, and the rest for `make exhaustive`.

    A number that does not divide what the cases vary meets every value of each.
    """
    return [
        pytest.param(*case, marks=[] if number % few == 0 else _tiers(number % every == 0))
        for number, case in enumerate(cases)
    ]


def one_in(every: int, cases: Iterable[Any]) -> list[Any]:
    """Parameters of a test of the matrix: every so many; `make exhaustive` tries the rest."""
    return [
        pytest.param(case, marks=_tiers(number % every == 0)) for number, case in enumerate(cases)
    ]


def _tiers(often: bool) -> list[pytest.MarkDecorator]:
    return [pytest.mark.matrix] if often else [pytest.mark.matrix, pytest.mark.exhaustive]


def _names(arguments: str | Sequence[str]) -> Sequence[str]:
    return (arguments,) if isinstance(arguments, str) else arguments


def _labelled(arguments: str | Sequence[str], values: Iterable[Any], ids: Any) -> Labelled:
    """Values as pytest takes them: one for one name, a sequence for several."""
    for number, value in enumerate(values):
        own = {arguments: value} if isinstance(arguments, str) else dict(zip(arguments, value))
        yield _label(own, ids, number), own


def _label(arguments: Mapping[str, Any], ids: Any, number: int) -> str:
    if ids is None:
        return ", ".join(f"{name}={_shown(value)}" for name, value in arguments.items())
    return ", ".join(map(ids, arguments.values())) if callable(ids) else list(ids)[number]


def _shown(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # an integer of more digits than Python writes
        return "..."


def _loop(names: Sequence[str], cases: Callable[[bool], Labelled]) -> Decorator:
    def decorate(test: Callable[..., None]) -> Any:
        asks = "first_case" in inspect.signature(test).parameters

        @wraps(test)
        def loop(first_case: bool, **fixtures: Any) -> None:
            fixtures = {**fixtures, "first_case": first_case} if asks else fixtures
            with all_cases() as case:
                for label, arguments in cases(first_case):
                    with case(label):
                        test(**arguments, **fixtures)

        loop.__signature__ = _signature(test, names)  # type: ignore[attr-defined]
        return loop

    return decorate


def _signature(test: Callable[..., None], names: Sequence[str]) -> inspect.Signature:
    """What others have to supply: what the test asks for without what is looped over."""
    own = inspect.signature(test).parameters
    left = dict.fromkeys(["first_case", *(name for name in own if name not in names)])
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([inspect.Parameter(name, kind) for name in left])
