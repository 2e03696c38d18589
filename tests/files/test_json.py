"""JSON: what it looks like, that it loses nothing, and how it refuses."""

import json as standard
from typing import Any

import pytest
from hypothesis import given

from files.strategies import everything, schedules, small, usual
from loops import each
from penstock.core.schedule import Schedule
from penstock.errors import FormatError, ShapeError
from penstock.files import json, text

SMALL = """\
{
  "format": "penstock-schedule",
  "version": 1,
  "name": "small",
  "shape": {"devices": 2, "stages": 2, "slices": [1, 1]},
  "lanes": [
    {"device": 0, "stream": "compute", "ops": ["0F0", "0F1", "0B0", "0B1"]},
    {"device": 1, "stream": "compute", "ops": ["1F0", "1B0", "1F1", "1B1"]}
  ]
}
"""


@usual
@given(schedules())
def test_a_schedule_comes_back_from_json_as_it_was(schedule: Schedule) -> None:
    assert everything(json.loads(json.dumps(schedule))) == everything(schedule)


@pytest.mark.matrix
@usual
@given(schedules())
def test_json_and_text_say_the_same(schedule: Schedule) -> None:
    assert text.dumps(json.loads(json.dumps(schedule))) == text.dumps(schedule)


def test_a_small_schedule_is_readable() -> None:
    assert json.dumps(small()) == SMALL


def test_fractions_are_texts_and_defaults_are_left_out() -> None:
    schedule = text.loads(
        "devices: 1\nstages: 2\nslices: 2 x 2\nstage_share: 1/3 2/3\nslice_share: 1/4 3/4\n"
        "share: 0O0 1/2\nloan: 0F0.1 0F1 3\n0 copy: 0O0\n"
    )
    tree = standard.loads(json.dumps(schedule))
    assert tree["shape"] == {
        "devices": 1,
        "stages": 2,
        "slices": [2, 2],
        "stage_share": ["1/3", "2/3"],
        "slice_share": [["1/4", "3/4"]],
    }
    assert tree["shares"] == [["0O0", "1/2"]]
    assert tree["loans"] == [["0F0.1", "0F1", 3]]
    assert set(tree) == {"format", "version", "shape", "loans", "shares", "lanes"}


def test_the_name_in_the_file_wins_over_the_one_it_is_read_under() -> None:
    assert json.loads(SMALL, "outside").name == "small"
    assert json.loads(json.dumps(small("")), "outside").name == "outside"


def test_a_name_that_does_not_fit_a_line_is_neither_written_nor_read() -> None:
    with pytest.raises(ShapeError, match="cannot be printed"):
        json.dumps(small("two\nlines"))
    with pytest.raises(FormatError, match="cannot be printed"):
        json.loads(SMALL.replace("small", "\\ud800"))


def changed(path: str, value: Any) -> str:
    """The small file with the value at a dotted path replaced."""
    tree = standard.loads(SMALL)
    *steps, last = path.split(".")
    inside: Any = tree
    for step in steps:
        inside = inside[int(step) if step.isdigit() else step]
    inside[int(last) if last.isdigit() else last] = value
    return standard.dumps(tree, indent=1)


@each(
    ("path", "value", "message"),
    [
        ("format", "other", "the format is not 'penstock-schedule'"),
        ("version", 2, "the version is not 1"),
        ("version", True, "the version is not 1"),
        ("name", 5, "5 is not a string"),
        ("shape", [], "a list of 0 is not an object"),
        ("shape.devices", 2.0, "2.0 is not an integer"),
        ("shape.devices", True, "True is not an integer"),
        ("shape.devices", None, "None is not an integer"),
        ("shape.devices", -1, "-1 is not an integer"),
        ("shape.devices", float("nan"), "nan is not an integer"),
        ("shape.devices", float("inf"), "inf is not an integer"),
        ("shape.stages", 10**9 - 1, "limit of 20,000,000"),
        ("shape.slices", 2, "2 is not a list"),
        ("shape.slices", [], "microbatches is 0"),
        ("shape.stage_share", [1, 1], "1 is not a fraction"),
        ("shape.stage_share", ["1"], "stage_share has 1 entries"),
        ("shape.stags", 2, "the key 'stags' is not known"),
        ("pairs", [["0F0"]], "a pair has 1 op instead of two"),
        ("pairs", {"0F0": 1}, "an object is not a list"),
        ("after", [["0F0", "0F1", "0B0"]], "3 values instead of 2"),
        ("lanes", [], "needs at least one op"),
        ("lanes.0.device", 2, "outside the 2 devices"),
        ("lanes.0.stream", "send", "the stream 'send' is not known"),
        ("lanes.0.ops", "0F0", "'0F0' is not a list"),
        ("lanes.0.ops.2", "0X0", "'0X0' is not an op"),
        ("lanes.0.ops.2", 5, "5 is not an op"),
        ("lanes.1.device", 0, "the lane 0 compute is given twice"),
        ("lane", [], "the key 'lane' is not known"),
    ],
)
def test_refused_with_the_place_and_a_hint(path: str, value: Any, message: str) -> None:
    written = changed(path, value)
    with pytest.raises(FormatError) as refusal:
        json.loads(written)
    assert message in refusal.value.message
    assert refusal.value.hint
    names = [step for step in path.split(".") if not step.isdigit()]
    if names[-1:] != ["lanes"] and message != "the lane 0 compute is given twice":
        around = written.split("\n")[: refusal.value.line]
        assert any(f'"{names[-1]}"' in line for line in around)


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ('"0F1"', '"0Q1"', (7, 55)),
        ('"stages": 2', '"stages": "2"', (5, 27)),
        ('"device": 1', '"device": 9', (8, 6)),
        ('"version": 1', '"version": 1, "version": 1', (3, 17)),
        ('"slices": [1, 1]', '"slices": [1, 0]', (5, 54)),
        ('"stream": "compute", "ops": ["1F0"', '"ops": ["1F0"', (8, 5)),
        ('"lanes"', '"lans"', (6, 3)),
        ('"0F1",', '"0F1"', (7, 61)),
    ],
)
def test_the_place_is_exact(before: str, after: str, place: tuple[int, int]) -> None:
    with pytest.raises(FormatError) as refusal:
        json.loads(SMALL.replace(before, after))
    assert (refusal.value.line, refusal.value.column) == place


@pytest.mark.parametrize("text", ["", "[]", "5", '"x"', "null", "{}", "nul", "\ufeff{}", "{]"])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(FormatError) as refusal:
        json.loads(text)
    assert refusal.value.hint


@pytest.mark.parametrize("deep", ["[" * 10**6, '{"shape":' * 10**6, '{"name": ' + "[" * 900])
def test_deep_nesting_ends_in_an_error(deep: str) -> None:
    with pytest.raises(FormatError):
        json.loads(deep)


def test_a_closed_deep_nest_is_refused_too() -> None:
    with pytest.raises(FormatError):
        json.loads('{"format": ' + "[" * 700 + "]" * 700 + "}")


def test_an_endless_number_is_refused_at_once() -> None:
    with pytest.raises(FormatError, match="is not an integer"):
        json.loads(SMALL.replace('"devices": 2', '"devices": ' + "9" * 10**6))
