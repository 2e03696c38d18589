"""Four ranks that the tests of the runtime share: starting them takes longer than most jobs."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def ranks() -> Iterator["Crew"]:  # noqa: F821 - torch is only there where it is needed
    from penstock.run.launch.worker_pool import Crew

    with Crew(4) as shared:
        yield shared
