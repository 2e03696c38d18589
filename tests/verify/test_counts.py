"""The counts in the README are those of the code."""

import re

import pytest

from write_counts import README, counts, rewritten

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return counts()


@pytest.mark.long
def test_the_counts_in_the_readme_are_what_they_count(found: dict[str, str]) -> None:
    page = README.read_text()
    assert page == rewritten(page, found), "python scripts/write_counts.py writes them anew"


@pytest.mark.long
def test_every_count_stands_in_the_readme(found: dict[str, str]) -> None:
    assert set(re.findall(r"<!-- count ([a-z0-9 ]+) -->", README.read_text())) == found.keys()


def test_a_wrong_count_is_put_right() -> None:
    page = "in <!-- count verified runs -->317<!-- end --> runs"
    assert rewritten(page, {"verified runs": "318"}) == page.replace("317", "318")
