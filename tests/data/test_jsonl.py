"""JSON lines: every line is a document or is refused with its place."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import outcome, thorough, usual
from penstock.data import jsonl
from penstock.data.jsonl import JsonLines, parse_line
from penstock.data.records.reader import RecordReader
from penstock.data.sources import SourceText
from penstock.errors import FormatError, ShapeError

HERE = Path("x.jsonl")
READER = RecordReader()

pieces = st.sampled_from([*'{}[]":,\\ntu0-e ', "text", '"text"', "null", "\\ud800", "\ufeff", "9"])
nonsense = st.binary(max_size=40) | st.lists(pieces, max_size=30).map(
    lambda it: "".join(it).encode()
)


def source(folder: Path, content: bytes, limit: int = 0) -> JsonLines:
    path = folder / "x.jsonl"
    path.write_bytes(content)
    return JsonLines([path], READER, limit)


def test_a_line_is_a_document_and_blank_lines_are_none(tmp_path: Path) -> None:
    content = b'{"text": "one\\ntwo", "id": 1}\n\n{"text": ""}\r\n  \n{"text": "end"}'
    found = source(tmp_path, content).documents()
    assert [document.text for document in found] == ["one\ntwo", "", "end"]


@usual
@given(text=st.text())
def test_whatever_a_text_holds_comes_back(text: str) -> None:
    line = json.dumps({"text": text}).encode()
    assert parse_line(line, READER, HERE, 1).text == text
    assert parse_line(line, READER, HERE, 1).replaced == 0


def test_half_a_surrogate_pair_is_replaced_and_counted() -> None:
    found = parse_line(b'{"text": "a\\ud800b"}', READER, HERE, 1)
    assert (found.text, found.replaced) == ("a?b", 1)


@pytest.mark.parametrize(
    ("line", "column", "message", "hint"),
    [
        (b"{text}", 2, "is not JSON lines: Expecting property name", "one JSON object"),
        (b'{"text": "a"} {}', 15, "is not JSON lines: Extra data", "one JSON object"),
        (b'{"text": "cut of', 10, "is not JSON lines: Unterminated string", "one JSON object"),
        (b'["text"]', 1, "is not an object", '{"text": "..."}'),
        (b'{"txt": "a"}', 1, "has no field 'text'", "did you mean 'txt'?"),
        (b'{"content": "a"}', 1, "has no field 'text'", "data.field names the one with the text"),
        (b'{"prompt": "a", "answer": "b"}', 1, "no field 'text'", "have prompt and completion"),
        (b"{}", 1, "has no field 'text'", "none are known"),
        (b'{"text": 3}', 1, "has a number in 'text'", "must hold a string"),
        (b'{"text": "\xff"}', 1, "has byte 0xff at 11", "UTF-8"),
        (b"[" * 100_000, 1, "cannot be read", "simplify"),
        (b"9" * 5_000, 1, "cannot be read", "simplify"),
    ],
)
def test_a_bad_line_is_refused_with_its_place(
    tmp_path: Path, line: bytes, column: int, message: str, hint: str
) -> None:
    content = b'{"text": "good"}\n\n' + line + b"\n"
    with pytest.raises(FormatError) as refusal:
        list(source(tmp_path, content).documents())
    assert (refusal.value.line, refusal.value.column) == (3, column)
    assert message in refusal.value.message
    assert "x.jsonl" in refusal.value.message
    assert hint in refusal.value.hint


@pytest.mark.parametrize(
    ("line", "end"),
    [(b'{"text": "a', ": Unterminated string"), (b'{"a\x00', ": Invalid control character")],
)
def test_what_is_wrong_with_a_line_does_not_end_in_the_middle(line: bytes, end: str) -> None:
    with pytest.raises(FormatError) as refusal:
        parse_line(line, READER, HERE, 1)
    assert refusal.value.message.endswith(end)


@thorough
@given(content=nonsense)
def test_any_bytes_are_a_document_or_refused(content: bytes) -> None:
    found = outcome(lambda: parse_line(content, READER, HERE, 7))
    if isinstance(found, SourceText):
        assert found.text.encode().decode() == found.text
    else:
        assert isinstance(found, FormatError)
        assert (found.line, bool(found.hint), len(found.message) < 400) == (7, True, True)


@thorough
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = b'{"text": "one"}\n{"text": "tw\xc3\xa9", "more": [1, {"a": null}]}\n{"text": "3"}\n'
    at = data.draw(st.integers(0, len(whole)))
    to = data.draw(st.integers(at, min(at + 4, len(whole))))
    content = whole[:at] + data.draw(st.binary(max_size=4)) + whole[to:]
    made = source(tmp_path_factory.getbasetemp(), content)
    found = outcome(lambda: list(made.documents()))
    lines = content.count(b"\n") + 1
    if isinstance(found, list):
        assert len(found) <= lines
    else:
        assert isinstance(found, FormatError)
        assert 1 <= found.line <= lines


def test_a_file_without_line_breaks_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "LONGEST_LINE", 20)
    with pytest.raises(FormatError, match=r"line 2, column 1.*more than 20 bytes"):
        list(source(tmp_path, b'{"text": "a"}\n{"text": "' + b"a" * 20 + b'"}').documents())


def test_a_limit_takes_whole_lines_from_the_first(tmp_path: Path) -> None:
    content = b'{"text": "1"}\n{"text": "22"}\n{"text": "3"}\n'
    for limit, expected in ((0, 3), (43, 3), (42, 2), (29, 2), (28, 1), (14, 1)):
        found = source(tmp_path, content, limit)
        assert len(list(found.documents())) == expected
        assert found.size == min(limit or 43, 43)
    with pytest.raises(ShapeError, match="limit_bytes is 13, but the first document, line 1 of"):
        list(source(tmp_path, content, 13).documents())


def test_a_byte_order_mark_before_the_first_line_is_no_part_of_it(tmp_path: Path) -> None:
    (found,) = source(tmp_path, b'\xef\xbb\xbf{"text": "a"}\n').documents()
    assert found.text == "a"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    made = source(tmp_path, b"")
    made.files[0].unlink()
    with pytest.raises(ShapeError, match=r"cannot read '.*x\.jsonl': No such file"):
        list(made.documents())


def test_field_and_limit_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    path = source(tmp_path, b'{"text": "a"}').files[0]
    marks = {
        JsonLines([path], RecordReader(field), limit).fingerprint()
        for field in ("text", "b")
        for limit in (0, 9)
    }
    assert len(marks) == 4
