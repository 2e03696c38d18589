"""The small case in a file's docstring is what the file generates."""

import re
from importlib import import_module

import pytest

from penstock.schedules import Spec, build, modules
from schedules.picture import lane

LETTERS = {"p": "devices", "m": "microbatches", "v": "chunks", "k": "slices"}
HEADINGS = ("Needs:", "Claims:", "Source:", "Where we differ:")

_DRAWING = re.compile(r"^    (?:(\S+): )?(p = .*)\n((?:    device \d.*\n)+)", re.MULTILINE)


def _specs(module: str) -> list[str]:
    values = vars(import_module(module)).values()
    return [value.name for value in values if isinstance(value, Spec)]


def _docstring(module: str) -> str:
    return import_module(module).__doc__ or ""


@pytest.mark.parametrize("module", modules())
def test_the_drawing_is_the_order(module: str) -> None:
    drawings = _DRAWING.findall(_docstring(module))
    names = [name or _specs(module)[0] for name, _, _ in drawings]
    assert names == _specs(module), "one drawing for each schedule of the file"
    for name, (_, heading, rows) in zip(names, drawings):
        sizes = dict(re.findall(r"(\w+) = (\d+)", heading))
        request = {LETTERS[key]: int(sizes.pop(key)) for key in LETTERS if key in sizes}
        schedule = build(name, **request, options=sizes)
        lines = rows.splitlines()
        assert len(lines) == schedule.shape.devices
        for device, line in enumerate(lines):
            words, ops = line.removesuffix("...").split()[1:], lane(schedule, device)
            assert words == (ops[: len(words)] if line.endswith("...") else ops)


@pytest.mark.parametrize("module", modules())
def test_needs_claims_sources_and_differences_are_told_in_this_order(module: str) -> None:
    text = _docstring(module)
    places = [text.find(heading) for heading in HEADINGS]
    assert -1 not in places
    assert places == sorted(places)
