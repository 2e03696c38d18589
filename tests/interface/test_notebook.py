"""What a notebook gets: a picture, never a flood, and findings where there is nothing to draw."""

from base64 import b64decode
from html import unescape

import pytest

import penstock
from penstock.display import Displayed
from penstock.files.text import loads
from penstock.interface import notebook


def small() -> penstock.Schedule:
    return penstock.build("1f1b", devices=4, microbatches=8)


def test_schedules_timelines_and_pictures_show_the_same_picture() -> None:
    schedule = small()
    shown = [
        each._repr_html_()
        for each in (schedule, penstock.simulate(schedule), penstock.draw(schedule))
    ]
    assert shown[0] is not None
    assert shown == [shown[0]] * 3
    drawn = b64decode(shown[0].partition("base64,")[2].partition('"')[0]).decode()
    assert drawn == penstock.draw(schedule).svg()


def test_the_picture_has_words_for_who_cannot_see_it() -> None:
    assert 'alt="One row per device, ' in (small()._repr_html_() or "")


@pytest.mark.long
@pytest.mark.parametrize(
    ("devices", "microbatches"), [(8, 50), (8, 51), (8, 512), (64, 64), (256, 256)]
)
def test_a_notebook_is_not_flooded(devices: int, microbatches: int) -> None:
    schedule = penstock.build("1f1b", devices=devices, microbatches=microbatches)
    assert len(schedule._repr_html_() or "") < 300_000


def test_what_is_not_shown_is_counted() -> None:
    shown = penstock.build("1f1b", devices=100, microbatches=20)._repr_html_() or ""
    assert "<img" not in shown
    assert "36 more lines with 1,440 ops not shown" in shown
    assert "4,000 ops, which are not shown one by one, as up to 800 would be" in shown


def test_a_schedule_that_would_take_long_to_time_shows_its_repr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notebook, "OPS_TIMED", 63)
    assert small()._repr_html_() is None
    assert repr(small()) == "<Schedule '1f1b': 4 devices, 4 stages, 8 microbatches, 64 ops>"


def test_a_refuted_schedule_shows_its_findings() -> None:
    wrong = loads("name: <b>\nstages: 1\ndevices: 1\nslices: 1\n0 compute: 0B0 0F0\n", "wrong")
    shown = wrong._repr_html_() or ""
    assert "<b>" not in shown
    assert "<Schedule '<b>': 1 devices" in unescape(shown)
    assert "read-before-write: 0B0 (device 0, position 0)" in unescape(shown)


def test_a_timeline_tells_its_results_at_a_prompt() -> None:
    assert repr(penstock.simulate(small())) == (
        "<Timeline '1f1b': 4 devices, 4 stages, 8 microbatches, 64 ops, "
        "makespan 33, bubble 27.3%, peak 4>"
    )


def test_without_a_drawer_a_notebook_falls_back_to_the_repr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Displayed, "drawer", "")
    assert small()._repr_html_() is None
