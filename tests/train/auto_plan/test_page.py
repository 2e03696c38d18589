"""The page about chosen plans says what is chosen."""

import re
from pathlib import Path

import pytest

from penstock.train.auto_plan.choose import choose_plan
from penstock.train.auto_plan.request import PlanRequest
from penstock.train.config.load import loads
from penstock.train.loop.setup import architecture

pytestmark = pytest.mark.torch

PAGES = Path(__file__).parents[3] / "docs/concepts"


def block(page: str, name: str) -> str:
    """The content of a file on a page."""
    found = re.search(rf"^```text {name}\n(.*?)^```$", (PAGES / page).read_text(), re.M | re.S)
    assert found is not None
    return found[1]


@pytest.mark.long
def test_the_example_of_the_page_is_chosen(tmp_path: Path) -> None:
    profile = tmp_path / "small.json"
    profile.write_text(block("profile.md", "small.json"))
    settings = loads(block("auto-plan.md", "auto.toml"), [f"plan.profile={profile}"])
    request = PlanRequest(settings, architecture(settings), 2, "cpu")
    plan = choose_plan(request, profile)
    chosen, _, counts = plan.words.partition(", the best of ")
    assert f"\nplan: {chosen}, the best of " in (PAGES / "auto-plan.md").read_text()
    assert counts  # which grow with every schedule
