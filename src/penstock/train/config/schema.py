"""The configuration as a JSON schema, and what a key takes in words.

Editors that complete and check TOML as it is typed read the schema; the reference page and the
hint beside a wrong value are worded from it.
"""

from functools import cache
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from penstock.train.config.fields import Section
from penstock.train.config.settings import Settings
from penstock.train.config.units import UNITS, with_texts

Schema = dict[str, Any]

_WORDS = {"string": "a string", "boolean": "true or false"}
_NUMBERS = {"integer": "an integer", "number": "a number"}
_BOUNDS = {
    "minimum": "of {:g} or more",
    "exclusiveMinimum": "above {:g}",
    "maximum": "at most {:g}",
    "exclusiveMaximum": "below {:g}",
}


class _Generator(GenerateJsonSchema):
    """TOML has no null: a key that may be None is left out. Titles would repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def nullable_schema(self, schema: Any) -> Schema:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> Schema:
        found = super().default_schema(schema)
        return {name: value for name, value in found.items() if (name, value) != ("default", None)}

    def sort(self, value: Any, parent_key: str | None = None) -> Any:
        return value


@cache
def schema() -> Schema:
    """JSON schema (draft 2020-12) of a configuration file."""
    head: Schema = {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": "Penstock training configuration",
    }
    whole = head | schema_of(Settings)
    for (section, key), unit in UNITS.items():
        keys = whole["properties"][section]["properties"]
        keys[key] = with_texts(keys[key], unit)
    return whole


def schema_of(section: type[Section]) -> Schema:
    """JSON schema of a table with the keys of this section and no others."""
    found = section.model_json_schema(schema_generator=_Generator)
    whole: Schema = _inlined(found, found.pop("$defs", {}))
    return whole


def _inlined(node: Any, named: Schema) -> Any:
    """A part of the schema with what it refers to in its place, texts on one line, no titles."""
    if isinstance(node, list):
        return [_inlined(inner, named) for inner in node]
    if not isinstance(node, dict):
        return " ".join(node.split()) if isinstance(node, str) else node
    if "$ref" in node:
        node = named[node["$ref"].rpartition("/")[2]] | node
    return {
        name: _inlined(inner, named)
        for name, inner in node.items()
        if name != "$ref" and not (name == "title" and isinstance(inner, str))
    }


def type_words(takes: Schema) -> str:
    """What a key takes, as in `an integer of 1 or more`.

    >>> type_words({"anyOf": [{"type": "integer", "minimum": 1}, {"enum": ["all"]}]})
    'an integer of 1 or more or "all"'
    """
    if "enum" in takes or "const" in takes:
        return _choice(takes.get("enum") or [takes["const"]])
    kind = takes.get("type", "")
    if kind in _NUMBERS:
        bounds = [text.format(takes[name]) for name, text in _BOUNDS.items() if name in takes]
        return " ".join((_NUMBERS[kind], " and ".join(bounds))).rstrip()
    if kind == "array":
        return _list(takes)
    if kind == "object":
        return _table(takes)
    if "examples" in takes:
        return f'a string such as "{takes["examples"][0]}"'
    return _WORDS.get(kind) or " or ".join(map(type_words, takes["anyOf"]))


def _choice(names: list[str]) -> str:
    *first, last = (f'"{name}"' for name in names)
    return " or ".join(filter(None, (", ".join(first), last)))


def _list(takes: Schema) -> str:
    size = f" of {takes['maxItems']}" if "maxItems" in takes else ""
    item = takes["prefixItems"][0] if "prefixItems" in takes else takes["items"]
    return f"a list{size}, each item {type_words(item)}"


def _table(takes: Schema) -> str:
    if "properties" not in takes:
        return f"a table, each value {type_words(takes['additionalProperties'])}"
    return f"a table with {', '.join(takes['properties'])}"
