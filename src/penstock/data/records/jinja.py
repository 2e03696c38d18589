"""Templates of others, run where they can reach nothing: Jinja's sandbox, and what they may call.

What they may call is what `transformers` gives them, so that they write the same text: `tojson`
without HTML, `raise_exception`, `strftime_now`, `{% generation %}`, `break` and `continue`. Only
the date is ours: a corpus has the same tokens on every day.
"""

import json
from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from penstock.errors import RunError

if TYPE_CHECKING:
    from jinja2 import Template

GeneratedSpans = list[tuple[int, int]]
LONGEST_MESSAGE = 200


class TemplateRefusedError(Exception):
    """A template that cannot be compiled, or that refuses what it is given."""


class CompiledTemplate:
    """A template that writes text and remembers which part is generated."""

    def __init__(self, template: "Template", written: list[str], spans: GeneratedSpans) -> None:
        self._template, self._written, self._spans = template, written, spans

    def render(self, values: Mapping[str, Any]) -> tuple[str, GeneratedSpans]:
        """The text, and the ranges of it that `{% generation %}` marks."""
        self._written.clear()
        self._spans.clear()
        try:
            for block in self._template.generate(**values):
                self._written.append(block)
        except Exception as error:  # a template is a program, and fails in as many ways
            raise TemplateRefusedError(_words(error)) from None
        return "".join(self._written), list(self._spans)


@lru_cache(maxsize=4)
def compile_template(source: str, today: date) -> CompiledTemplate:
    """A template, ready to write; `today` is what it gets for the date."""
    sandbox = _sandbox()
    written: list[str] = []
    spans: GeneratedSpans = []
    extension = _generation(written, spans)
    options = {"trim_blocks": True, "lstrip_blocks": True}
    environment = sandbox(**options, extensions=[extension, "jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = _as_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = today.strftime
    try:
        return CompiledTemplate(environment.from_string(source), written, spans)
    except Exception as error:
        raise TemplateRefusedError(_words(error)) from None


def _sandbox() -> Any:
    try:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise RunError(
            "chat templates need the package jinja2, which is not installed",
            hint="pip install 'penstock[hf]'",
        ) from None
    return ImmutableSandboxedEnvironment


def _generation(written: list[str], spans: GeneratedSpans) -> Any:
    """The tag `{% generation %}`, which tells `spans` where in the text it stands."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012 (Jinja reads it so)

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

        def _mark(self, caller: Any) -> str:
            start, text = sum(map(len, written)), str(caller())
            spans.append((start, start + len(text)))
            return text

    return Generation


def _as_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> None:
    raise TemplateRefusedError(message)


def _words(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return " ".join(text.split())[:LONGEST_MESSAGE]
