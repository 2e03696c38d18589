"""Many cases in one test: the loop goes on after a failure and tells all of them with their place.

A test for each of a thousand cases is a thousand things to collect, set up and report. One test
that loops costs the cases alone, as long as one failure does not hide the others:

    with all_cases() as case:
        for value in (0, -1, "many"):
            with case(name, value):
                assert refused(name, value)
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from itertools import islice
from typing import Any

import pytest

Place = Callable[..., AbstractContextManager[None]]
Cases = Callable[[], Iterable[tuple[str, Any]]]
"""Makes labels and cases when it is called, not when tests are collected."""


@contextmanager
def all_cases() -> Iterator[Place]:
    """Collect what fails in each `with case(*place)` and raise all of it at the end."""
    failures: list[BaseException] = []
    count = 0

    @contextmanager
    def case(*place: object) -> Iterator[None]:
        nonlocal count
        count += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as failure:
            failure.add_note(f"case: {', '.join(map(str, place))}")
            failures.append(failure)

    yield case
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {count} cases failed", failures)
    assert count, "the loop had no case, so it proves nothing"


def looped(argument: str, groups: Mapping[str, Cases]) -> Callable[[Any], Any]:
    """Call a test once for each group, with `argument` set to each of its cases in turn.

    With `--first-case` only the first case of each group is taken.
    """

    def decorate(test: Callable[..., None]) -> Any:
        @wraps(test)
        def loop(group: str, first_case: bool, **fixtures: Any) -> None:
            found = iter(groups[group]())
            with all_cases() as case:
                for label, value in islice(found, 1 if first_case else None):
                    with case(label):
                        test(**{argument: value}, **fixtures)

        loop.__signature__ = _signature(test, argument)  # type: ignore[attr-defined]
        return pytest.mark.parametrize("group", list(groups))(loop)

    return decorate


def _signature(test: Callable[..., None], argument: str) -> inspect.Signature:
    """What pytest has to supply: the group and the option instead of the case."""
    own = inspect.signature(test).parameters
    names = ["group", "first_case", *(name for name in own if name != argument)]
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([inspect.Parameter(name, kind) for name in names])
