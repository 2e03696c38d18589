"""One crew for all measurements of the tests."""

from collections.abc import Iterator

import pytest

from penstock.run.launch.worker_pool import Crew


@pytest.fixture(scope="session")
def pair() -> Iterator[Crew]:
    with Crew(2) as members:
        yield members
