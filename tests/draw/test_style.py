"""The colour table: readable on every op, also without colour vision."""

from itertools import combinations

import pytest

from draw.samples import sliced, split
from draw.vision import VISION, distance
from loops import each
from penstock.core.ops import KINDS
from penstock.draw.style import INKS, LOOKS, PATTERNS, SHADES, colour, contrast, ink, shades


def test_every_kind_has_a_look() -> None:
    assert list(LOOKS) == list(KINDS)
    assert {look.pattern for look in LOOKS.values()} == {"plain", *PATTERNS}


@each("kind", LOOKS)
def test_letters_can_be_read_on_every_shade(kind: str) -> None:
    for shade in range(SHADES):
        background = colour(kind, shade)
        assert contrast(ink(background), background) >= 4.5


@each("kind", LOOKS)
def test_later_shades_are_darker(kind: str) -> None:
    brightness = [contrast(colour(kind, shade), "#000000") for shade in range(SHADES)]
    assert brightness == sorted(brightness, reverse=True)
    assert len(set(brightness)) == SHADES


@pytest.mark.parametrize("vision", VISION)
def test_kinds_with_one_pattern_differ_in_colour_for_every_reader(vision: str) -> None:
    for one, other in combinations(LOOKS, 2):
        if LOOKS[one].pattern == LOOKS[other].pattern:
            for shade in range(SHADES):
                assert distance(colour(one, shade), colour(other, shade), vision) > 10


def test_slices_run_from_light_to_dark() -> None:
    schedule = sliced().schedule
    by_slice = dict(zip(schedule.table.slice.tolist(), shades(schedule).tolist()))
    assert [by_slice[slice] for slice in range(4)] == [0, 2, 4, 7]


def test_stages_of_one_device_run_from_light_to_dark() -> None:
    schedule = split().schedule
    by_stage = dict(zip(schedule.table.stage.tolist(), shades(schedule).tolist()))
    assert [by_stage[stage] for stage in range(8)] == [0] * 4 + [SHADES - 1] * 4


def test_contrast_is_that_of_the_web_guidelines() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
    assert ink("#ffffff") == INKS[0]
    assert ink("#333333") == INKS[1]
