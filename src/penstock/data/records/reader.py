"""What a record is, and which part of it a model learns to write.

A prompt is given and its completion is learned; of a conversation the turns of the assistant are. A
record is recognised by its fields, or `data.format` says what every record is. One that could be
two things is refused: a guess would train on something else than what was meant, in silence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.data._digest import digest
from penstock.data.records.chat import ChatTemplate
from penstock.data.records.refusal import RecordError
from penstock.data.sources import SourceDocument, SourceText, SourceTokens
from penstock.errors import nearest

IGNORED = -100
"""What a list of labels has for a token that does not count."""
MASKS = ("loss_mask", "assistant_masks", "completion_mask")
"""Fields with a 1 for each token that counts, and a 0 for others."""


@dataclass(frozen=True)
class RecordReader:
    """Makes documents of records."""

    field: str = "text"
    """Field of a record that is plain text."""
    format: str = "auto"
    template: ChatTemplate | None = None
    """What makes text of conversations."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever some record may become another text."""
        if self.format in ("auto", "text") and self.template is None:
            return self.field
        return digest(self.field, self.format, self.template.fingerprint if self.template else "")

    @property
    def fields(self) -> frozenset[str]:
        """All fields that are looked at."""
        named = ("prompt", "completion", "messages", "tools", "segments", "input_ids", "labels")
        return frozenset((self.field, *named, *MASKS))

    def read(self, record: object, size: int) -> SourceDocument:
        """The document of a record that took so many bytes."""
        if not isinstance(record, dict):
            raise RecordError("is not an object", f'write it as {{"{self.field}": "..."}}')
        kind = self._kind(record) if self.format == "auto" else self.format
        return _READERS[kind](self, record, size)

    def _kind(self, record: Mapping[str, Any]) -> str:
        marks = {"text": (self.field,), **_MARKS}
        found = [kind for kind, names in marks.items() if all(map(_filled(record), names))]
        if len(found) > 1:
            raise RecordError(
                f"may be read as {' or as '.join(found)}: it has the fields of both",
                "say what it is with data.format",
            )
        if not found and self.field not in record:
            raise _no_field(record, self.field, OTHER_RECORDS)
        return found[0] if found else "text"

    def chat(self) -> ChatTemplate:
        """The template, where there is one."""
        if self.template is None:
            raise RecordError(
                "is a conversation, but the tokenizer has no chat template",
                "name the folder of a tokenizer with one in data.tokenizer, or a file in "
                "data.chat_template",
            )
        return self.template


_MARKS = {
    "prompt": ("prompt", "completion"),
    "chat": ("messages",),
    "segments": ("segments",),
    "tokens": ("input_ids",),
}
"""Fields that tell kinds of records apart."""
OTHER_RECORDS = (
    "data.field names the one with the text, and other records have prompt and completion, "
    "messages, segments or input_ids"
)
"""What to do with a record that is of no known kind."""


def _filled(record: Mapping[str, Any]) -> Callable[[str], bool]:
    """Whether a field is there; a table has an empty one in rows that lack it."""
    return lambda name: record.get(name) is not None


def _text(reader: RecordReader, record: Mapping[str, Any], size: int) -> SourceText:
    return _document(_string(record, reader.field), size)


def _prompt(reader: RecordReader, record: Mapping[str, Any], size: int) -> SourceText:
    """Two texts, or two lists of messages."""
    if isinstance(record.get("prompt"), list):
        turns = _messages(record, "prompt"), _messages(record, "completion")
        found = reader.chat().render_completion(*turns, record.get("tools"))
        return _document(found.text, size, found.counted, rendered=True)
    prompt, completion = _string(record, "prompt"), _string(record, "completion")
    whole = prompt + completion
    return _document(whole, size, ((len(prompt), len(whole)),))


def _instruction(reader: RecordReader, record: Mapping[str, Any], size: int) -> SourceText:
    roles = {"user": _string(record, "prompt"), "assistant": _string(record, "completion")}
    messages = [{"role": role, "content": content} for role, content in roles.items()]
    found = reader.chat().render(messages, None)
    return _document(found.text, size, found.counted, rendered=True)


def _chat(reader: RecordReader, record: Mapping[str, Any], size: int) -> SourceText:
    found = reader.chat().render(_messages(record, "messages"), record.get("tools"))
    return _document(found.text, size, found.counted, rendered=True)


def _segments(reader: RecordReader, record: Mapping[str, Any], size: int) -> SourceText:
    """Texts that follow each other, each with whether it counts."""
    parts = _list(record, "segments", dict, "objects")
    texts = [_string(part, "text") for part in parts]
    ends = list(accumulate(map(len, texts)))
    for part in parts:
        if not isinstance(part.get("label"), bool):
            raise RecordError("has a segment without 'label'", "give each one true or false")
    counted = [
        (end - len(text), end) for part, text, end in zip(parts, texts, ends) if part["label"]
    ]
    return _document("".join(texts), size, tuple(counted))


def _tokens(reader: RecordReader, record: Mapping[str, Any], size: int) -> SourceTokens:
    tokens = _numbers(record, "input_ids", 0)
    masks = [name for name in ("labels", *MASKS) if _filled(record)(name)]
    if len(masks) > 1:
        raise RecordError(f"has both {masks[0]!r} and {masks[1]!r}", "give one of them")
    if not masks:
        return SourceTokens(tokens, size, None)
    (name,) = masks
    marks = _numbers(record, name, IGNORED)
    if len(marks) != len(tokens):
        raise RecordError(
            f"has {len(tokens):,} tokens, but {len(marks):,} entries in {name!r}",
            "give one for each token",
        )
    return SourceTokens(tokens, size, _counted(name, tokens, marks))


def _counted(name: str, tokens: NDArray[np.int64], marks: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tokens that count, by labels or by a mask."""
    labels = name == "labels"
    wrong = (marks != tokens) & (marks != IGNORED) if labels else (marks != 0) & (marks != 1)
    if wrong.any():
        at = int(np.argmax(wrong))
        rule = f"the token itself or {IGNORED}" if labels else "0 or 1"
        raise RecordError(f"has {marks[at]} at {at} of {name!r}", f"each entry is {rule}")
    counted: NDArray[np.bool_] = marks != IGNORED if labels else marks == 1
    return counted


_READERS: dict[str, Callable[[RecordReader, Mapping[str, Any], int], SourceDocument]] = {
    "text": _text,
    "prompt": _prompt,
    "instruction": _instruction,
    "chat": _chat,
    "segments": _segments,
    "tokens": _tokens,
}


def _document(
    text: str,
    size: int,
    counted: tuple[tuple[int, int], ...] | None = None,
    *,
    rendered: bool = False,
) -> SourceText:
    """Half of a surrogate pair is no character: a ? takes its place."""
    whole = text.encode(errors="replace").decode()
    replaced = sum(a != b for a, b in zip(text, whole)) if whole != text else 0
    return SourceText(whole, size, replaced, counted, rendered)


def _string(record: Mapping[str, Any], field: str) -> str:
    value = _value(record, field)
    if not isinstance(value, str):
        kind = _JSON_NAMES.get(type(value), f"a {type(value).__name__}")
        raise RecordError(f"has {kind} in {field!r}", "the field must hold a string")
    return value


_JSON_NAMES: Mapping[type, str] = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
}
"""What a file calls the values that Python has other names for."""


def _messages(record: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    found = _list(record, field, dict, "messages")
    for number, message in enumerate(found):
        if not isinstance(message.get("role"), str):
            raise RecordError(
                f"has no 'role' in message {number} of {field!r}",
                'a message is {"role": "user", "content": "..."}',
            )
    return found


def _list(record: Mapping[str, Any], field: str, kind: type, what: str) -> list[Any]:
    value = _value(record, field)
    if not isinstance(value, list) or not value or not all(isinstance(i, kind) for i in value):
        raise RecordError(f"has no list of {what} in {field!r}", "give one, not an empty one")
    return value


def _numbers(record: Mapping[str, Any], field: str, least: int) -> NDArray[np.int64]:
    """A list of whole numbers; masks may have true and false."""
    value, kinds = _value(record, field), (int, bool) if field in MASKS else (int,)
    whole = isinstance(value, list) and all(type(item) in kinds for item in value)
    if not whole or not all(least <= item < 1 << 31 for item in value):
        raise RecordError(f"has no list of tokens in {field!r}", "give whole numbers")
    return np.array(value, dtype=np.int64)


def _value(record: Mapping[str, Any], field: str) -> Any:
    if field not in record:
        raise _no_field(record, field)
    return record[field]


def _no_field(record: Mapping[str, Any], field: str, more: str = "") -> RecordError:
    names: Sequence[str] = [str(name) for name in list(record)[:20]]
    hint = nearest(field, names)
    between = " " if hint.endswith("?") else "; "
    return RecordError(f"has no field {field!r}", between.join(filter(None, (hint, more))))
