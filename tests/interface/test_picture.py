"""A picture shows itself as text, and is what the renderers make in a file."""

from pathlib import Path

import pytest

from penstock.draw import PICTURES, render_as
from penstock.errors import ScheduleError, ShapeError
from penstock.files.text import loads
from penstock.interface.picture import ENDINGS, LINES_SHOWN, draw
from penstock.schedules import build
from penstock.sim import simulate


def test_a_prompt_shows_what_the_terminal_would_draw() -> None:
    picture = draw(build("1f1b", devices=2, microbatches=2))
    assert repr(picture) == str(picture) == picture.text().rstrip("\n")
    assert "makespan 9" in repr(picture)


def test_a_schedule_is_drawn_at_unit_costs_and_a_timeline_as_it_is() -> None:
    schedule = build("1f1b", devices=2, microbatches=2)
    assert draw(schedule).svg() == draw(simulate(schedule)).svg()
    assert len(draw(schedule, simulate(schedule)).timelines) == 2


def test_a_schedule_that_is_refuted_has_no_picture() -> None:
    wrong = loads("stages: 1\ndevices: 1\nslices: 1\n0 compute: 0B0 0F0\n", "")
    with pytest.raises(ScheduleError, match="not valid"):
        draw(wrong)


def test_a_prompt_is_not_flooded() -> None:
    picture = draw(build("1f1b", devices=LINES_SHOWN + 6, microbatches=2))
    lines = repr(picture).splitlines()
    assert len(lines) == LINES_SHOWN + 3
    assert lines[-1] == "6 more lines with 24 ops not shown"
    assert len(picture.text().splitlines()) == LINES_SHOWN + 6 + 2


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_ending_of_a_file_says_what_is_in_it(tmp_path: Path, ending: str) -> None:
    picture = draw(build("1f1b", devices=2, microbatches=2))
    names = {".svg": "svg", ".html": "html", ".json": "trace"}
    picture.save(tmp_path / f"picture{ending}")
    name = names.get(ending)
    wanted = render_as(name, picture.timelines) if name else picture.text()
    assert (tmp_path / f"picture{ending}").read_text() == wanted
    assert set(names.values()) == set(PICTURES)


def test_another_ending_is_refused(tmp_path: Path) -> None:
    picture = draw(build("1f1b", devices=2, microbatches=2))
    with pytest.raises(ShapeError, match=r"ending '\.png' is that of no picture") as refusal:
        picture.save(tmp_path / "picture.png")
    assert ".svg, .html, .json, .txt" in refusal.value.hint
