"""One crew for all measurements of the tests."""

from collections.abc import Iterator

import pytest

from penstock.run.crew import Crew


@pytest.fixture(scope="session")
def pair() -> Iterator[Crew]:
    with Crew(2) as members:
        yield members
