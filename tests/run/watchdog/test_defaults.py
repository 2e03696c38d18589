"""The watch has one set of defaults: those of the configuration, which the pages state."""

import re
from pathlib import Path

import pytest

from penstock.run.launch.launcher import Limits
from penstock.run.watchdog.alarm import Patience
from penstock.run.watchdog.watchdog import BEAT
from penstock.train.config.sections import WatchSettings

pytestmark = pytest.mark.torch

PAGES = Path(__file__).parents[3] / "docs"
DEFAULTS = WatchSettings()


def test_a_watch_without_a_configuration_has_the_same_defaults() -> None:
    assert DEFAULTS.heartbeat == BEAT
    assert Patience()[:3] == (DEFAULTS.patience, DEFAULTS.stuck, DEFAULTS.frozen)
    assert Limits() == (DEFAULTS.patience, DEFAULTS.frozen)


def test_seconds_on_the_pages_are_the_defaults() -> None:
    said = [
        (page.name, key, float(seconds))
        for page in PAGES.rglob("*.md")
        for key, seconds in re.findall(r"`watch\.(\w+)` \(([\d.]+) s\)", page.read_text())
    ]
    assert {key for _, key, _ in said} == set(WatchSettings.model_fields)
    assert [row for row in said if row[2] != getattr(DEFAULTS, row[1])] == []
