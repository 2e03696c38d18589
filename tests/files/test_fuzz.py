"""Whatever stands in a file, reading it ends in a schedule or in our own error with a place."""

from collections.abc import Callable

import pytest
from files.strategies import damaged, schedules, small
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import files
from penstock.core.schedule import Schedule
from penstock.errors import FormatError, PenstockError
from penstock.files import FORMATS, json, text, torch_csv

Parser = Callable[[str], Schedule]
PARSERS: dict[str, Parser] = {
    "text": text.loads,
    "json": json.loads,
    "csv": torch_csv.loads,
    "any": files.loads,
}
OVERLAPPED = "0F0,0F1,(0F2;3B0)OVERLAP_F_B,3I1,3W1,0SEND_F0\n1F0,,2F0,2B0\n"

alphabet = st.sampled_from(
    [*"0123456789FBIWNEDSTOLGZUV.,:;()[]{}\"'#/-x \n\t\r", "compute", "pair:"]
)
nonsense = st.text() | st.lists(alphabet, max_size=60).map("".join)


def read(parse: Parser, content: str) -> Schedule | None:
    """The schedule, or None after a refusal that says where and what to do."""
    try:
        return parse(content)
    except FormatError as refusal:
        lines = content.split("\n")
        assert 1 <= refusal.line <= len(lines)
        assert 1 <= refusal.column <= len(lines[refusal.line - 1]) + 1
        assert refusal.hint
        assert len(refusal.message) < 400
        return None


@pytest.mark.parametrize("parser", PARSERS)
@given(content=nonsense)
def test_nonsense_is_refused_with_a_place(parser: str, content: str) -> None:
    read(PARSERS[parser], content)


@settings(max_examples=300)
@given(data=st.data())
def test_damaged_text_lanes_are_read_or_refused(data: st.DataObject) -> None:
    written = text.dumps(data.draw(schedules()))
    read(text.loads, data.draw(damaged(written)))


@settings(max_examples=300)
@given(data=st.data())
def test_damaged_json_is_read_or_refused(data: st.DataObject) -> None:
    written = json.dumps(data.draw(schedules()))
    read(json.loads, data.draw(damaged(written)))


@settings(max_examples=300)
@given(content=damaged(OVERLAPPED))
def test_damaged_csv_is_read_or_refused(content: str) -> None:
    read(torch_csv.loads, content)


@settings(max_examples=200)
@given(data=st.data(), format=st.sampled_from(list(FORMATS)))
def test_what_is_read_from_a_damaged_file_can_be_written_again(
    data: st.DataObject, format: str
) -> None:
    content = data.draw(damaged(FORMATS[format].dumps(small())))
    schedule = read(files.loads, content)
    if schedule is not None:
        assert text.loads(text.dumps(schedule)) == schedule
        assert json.loads(json.dumps(schedule)) == schedule


@given(content=st.binary(max_size=60) | nonsense.map(lambda text: text.encode("utf-8", "replace")))
def test_random_bytes_in_a_file_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes"
    path.write_bytes(content)
    try:
        files.load(path)
    except PenstockError as refusal:
        assert refusal.hint


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize(
    "piece",
    ["0F0 ", "0F0,", "[", '{"a":', "a: b\n", "0 compute: 0F0\n", ";", "x ", "((", "\0", "\n"],
)
def test_long_repetitions_end_at_once(parser: str, piece: str) -> None:
    read(PARSERS[parser], piece * (200_000 // len(piece)))
    read(PARSERS[parser], "slices: 1 " + piece * (200_000 // len(piece)))
