"""The configuration as a JSON schema, for editors that complete and check TOML as it is typed."""

from typing import Any

from penstock.schedules import registry
from penstock.train.config.config import Section, sections
from penstock.train.config.keys import table_schema


def schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a configuration file."""
    found = sections()
    needed = [section.name for section in found if any(key.needed for key in section.keys)]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Penstock training configuration",
        "type": "object",
        "properties": {section.name: _table(section) for section in found},
        "required": needed,
        "additionalProperties": False,
    }


def _table(section: Section) -> dict[str, Any]:
    text = " ".join((section.settings.__doc__ or "").split())
    table = {"description": text, **table_schema(section.keys)}
    if section.name == "pipeline":
        _name_schedules(table["properties"])
    return table


def _name_schedules(properties: dict[str, Any]) -> None:
    """A schedule is a registered name or a file: editors offer the names and take both."""
    names = {"enum": list(registry())}
    properties["schedule"] |= {"anyOf": [names, {"type": "string"}]}
