"""Ranks that the tests of changed layouts share: a crew of each size, started when it is needed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest


@pytest.fixture(scope="module")
def crews() -> Iterator[Callable[[int], "Crew"]]:  # noqa: F821 - torch is only there where needed
    from penstock.run.launch.worker_pool import Crew

    with ExitStack() as stack:
        yield cache(lambda ranks: stack.enter_context(Crew(ranks)))
