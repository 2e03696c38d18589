"""Conversations as the text that a model was trained on: the tokenizer's own chat template.

A template is a program in Jinja that a tokenizer brings along. It may say itself which characters
the assistant writes (`{% generation %}`). Where it does not, they follow from what it writes: the
turn of the assistant is what it adds to the turns before and the prompt for an answer.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from penstock.data._digest import digest, unreadable
from penstock.data.records.jinja import TemplateRefusedError, compile_template
from penstock.data.records.refusal import RecordError
from penstock.errors import ShapeError
from penstock.files.json_object import read_object
from penstock.files.regular import read_regular

CONFIG, SPECIAL, OWN_FILE = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names under which records keep what an assistant thought; templates read the first two."""
TURN_WEIGHT = "weight"
"""Key of a message of the assistant that is not learned where it is 0."""

ChatMessage = dict[str, Any]
Counted = tuple[tuple[int, int], ...]


class Rendered(NamedTuple):
    """A conversation as text."""

    text: str
    counted: Counted
    """Characters that the assistant writes."""


@dataclass(frozen=True)
class ChatTemplate:
    """A template, with the special tokens that it names."""

    name: str
    source: str
    tokens: Mapping[str, str]
    """Special tokens by the name that templates know, such as `bos_token`."""
    today: date

    @property
    def fingerprint(self) -> str:
        return digest(self.source, json.dumps(dict(self.tokens), sort_keys=True), str(self.today))

    def render(self, messages: Sequence[ChatMessage], tools: Any) -> Rendered:
        """The text of a conversation, and what of it the assistant writes."""
        text, told = self._write(messages, tools)
        spans = told or [
            self._turn(text, messages, number, tools)
            for number, message in enumerate(messages)
            if message["role"] == "assistant"
        ]
        return Rendered(text, _weighed(messages, spans))

    def render_completion(
        self, prompt: Sequence[ChatMessage], completion: Sequence[ChatMessage], tools: Any
    ) -> Rendered:
        """The text of two lists of messages; the second one is what is learned."""
        text, _ = self._write([*prompt, *completion], tools)
        before, _ = self._write(prompt, tools, prompted=True)
        if not text.startswith(before):
            raise RecordError(
                "has a prompt that the chat template writes differently when an answer follows it",
                "give the whole conversation in 'messages'",
            )
        return Rendered(text, ((len(before), len(text)),))

    def _turn(
        self, text: str, messages: Sequence[ChatMessage], number: int, tools: Any
    ) -> tuple[int, int]:
        """Characters of one turn of the assistant."""
        before, _ = self._write(messages[:number], tools, prompted=True)
        after, _ = self._write(messages[: number + 1], tools)
        if not (text.startswith(after) and after.startswith(before)):
            raise RecordError(
                f"has message {number}, which the chat template writes differently when others "
                "follow it, so that its part of the text cannot be told",
                "give data.chat_template a copy of the template in which {% generation %} and "
                "{% endgeneration %} stand around what the assistant writes",
            )
        return len(before), len(after)

    def _write(
        self, messages: Sequence[ChatMessage], tools: Any, *, prompted: bool = False
    ) -> tuple[str, list[tuple[int, int]]]:
        told = [_with_reasoning(message) for message in messages]
        given = {"messages": told, "tools": tools, "documents": None}
        try:
            return compile_template(self.source, self.today).render(
                {**self.tokens, **given, "add_generation_prompt": prompted}
            )
        except TemplateRefusedError as error:
            raise RecordError(f"is refused by the chat template: {error}", self._hint()) from None

    def _hint(self) -> str:
        return f"change the record to what {self.name} takes"


def _with_reasoning(message: ChatMessage) -> ChatMessage:
    """A message with its reasoning under the names that templates read, and without our own key."""
    found = next((message[key] for key in REASONING if message.get(key) is not None), None)
    plain = {key: value for key, value in message.items() if key != TURN_WEIGHT}
    return plain if found is None else {"thinking": found, **plain, "reasoning_content": found}


def _weighed(messages: Sequence[ChatMessage], spans: Sequence[tuple[int, int]]) -> Counted:
    """The spans of turns that are learned: those with the weight 0 are not."""
    turns = [message for message in messages if message["role"] == "assistant"]
    weights = [1 if message.get(TURN_WEIGHT) is None else message[TURN_WEIGHT] for message in turns]
    for weight in weights:
        if weight not in (0, 1):
            raise RecordError(f"has a message with the weight {weight!r}", "give 0 or 1")
    if all(weights):
        return tuple(spans)
    if len(spans) != len(turns):
        raise RecordError(
            f"has weights, but the chat template marks {len(spans)} parts of the text for "
            f"{len(turns)} turns of the assistant",
            "leave the weights out, or mark each turn once in the template",
        )
    return tuple(span for span, weight in zip(spans, weights) if weight)


def find_template(tokenizer: str, given: str, today: str) -> ChatTemplate | None:
    """The template of a file, or of the folder of a tokenizer; None where there is none."""
    folder = Path(tokenizer).expanduser()
    folder = folder if folder.is_dir() else folder.parent
    config = _object(folder / CONFIG) if tokenizer != "byte" else {}
    if given:
        name, source = given, _file(Path(given).expanduser())
    elif tokenizer != "byte" and (folder / OWN_FILE).exists():
        name, source = str(folder / OWN_FILE), _file(folder / OWN_FILE)
    else:
        name, source = str(folder / CONFIG), _default(config.get("chat_template"))
    if not source:
        return None
    special = {**config, **(_object(folder / SPECIAL) if tokenizer != "byte" else {})}
    found = ChatTemplate(name, source, _special_tokens(special), date.fromisoformat(today))
    _refuse_broken(found)
    return found


def _refuse_broken(template: ChatTemplate) -> None:
    try:
        compile_template(template.source, template.today)
    except TemplateRefusedError as error:
        raise ShapeError(
            f"the chat template of {template.name!r} cannot be read: {error}",
            hint="give another one in data.chat_template",
        ) from None


def _object(path: Path) -> dict[str, Any]:
    return read_object(path, "give the folder of a tokenizer") if path.exists() else {}


def _file(path: Path) -> str:
    try:
        return read_regular(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None


def _default(found: Any) -> str:
    """The template of that name among several, or the only one."""
    if isinstance(found, list):
        named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else ""


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens, which files write as text or as an object with its content.

    >>> _special_tokens({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None})
    {'bos_token': '<s>', 'eos_token': '</s>'}
    """
    named = {name: value for name, value in config.items() if name.endswith("_token")}
    texts = {
        name: value.get("content") if isinstance(value, dict) else value
        for name, value in named.items()
    }
    return {name: text for name, text in texts.items() if isinstance(text, str)}
