import re
from pathlib import Path

import pytest

from every_schedule.cases import name_of, specs
from penstock.schedules import Spec
from write_schedule_pages import FOLDER, rewritten

SECTIONS = ["When to use it", "The small case", "Needs", "Options", "Claims", "Where we differ"]


def page_of(spec: Spec) -> str:
    return (FOLDER / f"{spec.name}.md").read_text()


@pytest.mark.parametrize("spec", specs(), ids=name_of)
def test_what_a_page_shows_is_what_its_command_prints_and_its_record_says(spec: Spec) -> None:
    page = page_of(spec)
    assert page == rewritten(page, spec), "python scripts/write_schedule_pages.py writes it anew"


@pytest.mark.parametrize("spec", specs(), ids=name_of)
def test_a_page_has_its_parts_in_order(spec: Spec) -> None:
    page = page_of(spec)
    assert page.startswith(f"# {spec.name}: {spec.title}\n\n")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == SECTIONS
    assert re.findall(r"^\$ penstock show (\S+) ", page, re.MULTILINE) == [spec.name]
    assert spec.paper in page


def test_a_stale_page_is_rewritten() -> None:
    spec = specs()[0]
    page = page_of(spec)
    stale = page.replace("makespan", "timespan")
    assert stale != page
    assert rewritten(stale, spec) == page


def test_there_is_no_page_without_a_schedule() -> None:
    assert {path.stem for path in Path(FOLDER).glob("*.md")} == {spec.name for spec in specs()}
