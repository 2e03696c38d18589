"""The reference of the configuration, written from the settings themselves.

`python scripts/write_config_reference.py` writes the tables of docs/reference/config.md and the
schema anew.
"""

import json
import re
from pathlib import Path

from penstock.train.config.config import Section, sections
from penstock.train.config.keys import Key, Record, keys_of
from penstock.train.config.schema import schema
from penstock.train.config.toml import value_text

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/config.md"
SCHEMA = ROOT / "docs/reference/config.schema.json"

_KEYS = re.compile(r"(?<=<!-- keys -->\n).*?(?=<!-- end -->)", re.DOTALL)


def rewritten(page: str) -> str:
    """The page with the keys as they are now."""
    return _KEYS.sub(lambda _: "\n".join(map(_section, sections())), page)


def schema_text() -> str:
    return json.dumps(schema(), indent=2) + "\n"


def _section(section: Section) -> str:
    about = " ".join((section.settings.__doc__ or "").split())
    text = f"### [{section.name}]\n\n{about}\n\n{_table(section.keys)}"
    for key in section.keys:
        if isinstance(key.kind, Record):
            text += f"\n`{section.name}.{key.name}`:\n\n{_table(keys_of(key.kind.make))}"
    return text


def _table(keys: tuple[Key, ...]) -> str:
    head = ["| key | takes | default | meaning |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *map(_row, keys)]) + "\n"


def _row(key: Key) -> str:
    takes = "a table, see below" if isinstance(key.kind, Record) else key.kind.words
    cells = (f"`{key.name}`", takes.replace("|", "\\|"), _default(key), key.text)
    return f"| {' | '.join(cells)} |"


def _default(key: Key) -> str:
    if key.needed:
        return "must be given"
    return "" if key.default is None else f"`{value_text(key.default)}`"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
    SCHEMA.write_text(schema_text())
