"""The reference page, the schema and the settings say the same."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loops import each
from penstock.schedules import registry
from penstock.train.config.load import loads
from penstock.train.config.save import tables
from penstock.train.config.schema import Schema, schema
from penstock.train.config.sections import WatchSettings
from penstock.train.config.toml_text import value_text
from train.samples import short
from write_config_reference import PAGE, SCHEMA, rewritten, schema_text

ANEW = "python scripts/write_config_reference.py writes it anew"


def test_the_page_has_the_keys_as_they_are() -> None:
    text = PAGE.read_text()
    assert text == rewritten(text), ANEW


def test_the_saved_schema_is_the_schema() -> None:
    assert SCHEMA.read_text() == schema_text(), ANEW


def test_the_configuration_on_the_page_is_whole() -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert loads(example).run.steps == 500
    assert len(example.split("\n")) <= 12


def test_every_change_on_the_page_can_be_made() -> None:
    for words in re.findall(r'--set (?:"(.+?)"|([^\s`"]+=[^\s`"]+))', PAGE.read_text()):
        change = next(filter(None, words))
        if not change.startswith("section."):
            name = change.partition("=")[0].split(".")[0]
            assert name in schema()["properties"], change
            assert short(change, *(["pipeline.slices=2", "batch.length=1024"] * ("cut" in change)))


def every_key() -> list[tuple[str, str, Schema]]:
    return [
        (name, key, takes)
        for name, section in schema()["properties"].items()
        for key, takes in section["properties"].items()
    ]


@each(("section", "key", "takes"), every_key())
def test_every_key_has_a_meaning_and_a_default_that_it_takes(
    section: str, key: str, takes: Schema
) -> None:
    assert takes["description"].endswith(".")
    if "default" in takes:
        default = value_text(takes["default"])
        assert short(f"{section}.{key}={default}") == short()
    else:
        assert section == "model" or key in schema()["properties"][section]["required"]


ROOT = Path(__file__).parents[2]


def test_seconds_beside_a_key_on_any_page_are_its_default() -> None:
    found = [
        (page.name, section, key, float(seconds))
        for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
        for section, key, seconds in re.findall(
            r"`([a-z]+)\.([a-z_]+)` \(([\d.]+) s\)", page.read_text()
        )
    ]
    assert {key for _, _, key, _ in found} >= {"heartbeat", "frozen", "patience", "stuck"}
    for page, section, key, seconds in found:
        assert seconds == schema()["properties"][section]["properties"][key]["default"], (page, key)


@pytest.mark.torch
def test_a_watch_without_settings_has_the_same_defaults() -> None:
    from penstock.run.launch.launcher import Limits
    from penstock.run.watchdog.alarm import Patience
    from penstock.run.watchdog.watchdog import BEAT

    watch = WatchSettings()
    assert Patience()[:3] == (watch.patience, watch.stuck, watch.frozen)
    assert Limits() == (watch.patience, watch.frozen)
    assert watch.heartbeat == BEAT


def test_editors_are_offered_every_schedule_and_may_name_a_file() -> None:
    offered = schema()["properties"]["pipeline"]["properties"]["schedule"]["anyOf"]
    assert offered == [{"enum": list(registry())}, {"type": "string"}]


def test_the_schema_knows_the_keys_of_a_resolved_configuration_and_no_others() -> None:
    properties = schema()["properties"]
    resolved: dict[str, dict[str, Any]] = json.loads(json.dumps(tables(short())))
    assert resolved.keys() == properties.keys()
    for name, keys in resolved.items():
        assert keys.keys() <= properties[name]["properties"].keys()
        assert properties[name]["additionalProperties"] is False
    assert schema()["required"] == ["pipeline"]


@pytest.mark.processes
def test_a_configuration_is_read_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from penstock.train.config.load import load\n"
        "from penstock.train.loop.setup import layout_of\n"
        "from penstock.train.config.schema import schema\n"
        "layout_of(load('examples/quickstart.toml'), 4), schema()"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
