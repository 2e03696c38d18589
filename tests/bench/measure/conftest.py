"""One crew for all measurements of the tests."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def pair() -> Iterator["Crew"]:  # noqa: F821 - torch is only there where it is needed
    from penstock.run.launch.worker_pool import Crew

    with Crew(2) as members:
        yield members
