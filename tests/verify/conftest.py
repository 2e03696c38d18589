"""Processes that the tests of the verifier share."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def verifier() -> Iterator["Verifier"]:  # noqa: F821 - torch is only there where it is needed
    from penstock.verify.verifier import Verifier

    with Verifier() as shared:
        yield shared
