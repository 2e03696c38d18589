"""The reference of the configuration, written from the settings themselves.

`python scripts/write_config_reference.py` writes the tables of docs/reference/config.md and the
schema anew.
"""

import json
import re
from pathlib import Path

from penstock.train.config.schema import Schema, schema, type_words
from penstock.train.config.toml_text import value_text

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/config.md"
SCHEMA = ROOT / "docs/reference/config.schema.json"

_KEYS = re.compile(r"(?<=<!-- keys -->\n).*?(?=<!-- end -->)", re.DOTALL)


def rewritten(page: str) -> str:
    """The page with the keys as they are now."""
    sections = schema()["properties"].items()
    return _KEYS.sub(lambda _: "\n".join(_section(*section) for section in sections), page)


def schema_text() -> str:
    return json.dumps(schema(), indent=2) + "\n"


def _section(name: str, section: Schema) -> str:
    text = f"### [{name}]\n\n{section['description']}\n\n{_table(section)}"
    for key, takes in section["properties"].items():
        if "properties" in takes:
            text += f"\n`{name}.{key}`:\n\n{_table(takes)}"
    return text


def _table(table: Schema) -> str:
    head = ["| key | takes | default | meaning |", "| --- | --- | --- | --- |"]
    needed = table.get("required", [])
    rows = [_row(key, takes, key in needed) for key, takes in table["properties"].items()]
    return "\n".join([*head, *rows]) + "\n"


def _row(key: str, takes: Schema, needed: bool) -> str:
    wanted = (
        "a table, see below" if "properties" in takes else type_words(takes).replace("|", "\\|")
    )
    default = f"`{value_text(takes['default'])}`" if "default" in takes else ""
    cells = (f"`{key}`", wanted, "must be given" if needed else default, takes["description"])
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
    SCHEMA.write_text(schema_text())
