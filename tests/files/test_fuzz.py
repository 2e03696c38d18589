"""Whatever stands in a file, reading it ends in a schedule or in our own error with a place."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.strategies import FULL, damaged, small, thorough, usual
from loops import each
from penstock import files
from penstock.core.schedule import Schedule
from penstock.errors import FormatError
from penstock.files import FORMATS, json, text, torch_csv

pytestmark = pytest.mark.filterwarnings("ignore:.*sends and receives are not read")

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


def read(parse: Parser, content: str) -> Schedule | FormatError:
    """The schedule, or a refusal, which must say where and what to do."""
    try:
        return parse(content)
    except FormatError as refusal:
        answer = refusal
    lines = content.split("\n")
    assert 1 <= answer.line <= len(lines)
    assert 1 <= answer.column <= len(lines[answer.line - 1]) + 1
    assert answer.hint
    assert len(answer.message) < 400
    return answer


@pytest.mark.parametrize("parser", PARSERS)
@usual
@given(content=nonsense)
def test_nonsense_is_refused_with_a_place(parser: str, content: str) -> None:
    read(PARSERS[parser], content)


@thorough
@given(content=damaged(FULL))
def test_damaged_text_lanes_are_read_or_refused(content: str) -> None:
    read(text.loads, content)


@thorough
@given(content=damaged(json.dumps(text.loads(FULL))))
def test_damaged_json_is_read_or_refused(content: str) -> None:
    read(json.loads, content)


@thorough
@given(content=damaged(OVERLAPPED))
def test_damaged_csv_is_read_or_refused(content: str) -> None:
    read(torch_csv.loads, content)


@thorough
@given(data=st.data(), format=st.sampled_from(list(FORMATS)))
def test_what_is_read_from_a_damaged_file_can_be_written_again(
    data: st.DataObject, format: str
) -> None:
    content = data.draw(damaged(FORMATS[format].dumps(small())))
    schedule = read(files.loads, content)
    if isinstance(schedule, Schedule):
        assert text.loads(text.dumps(schedule)) == schedule
        assert json.loads(json.dumps(schedule)) == schedule


@usual
@given(content=st.binary(max_size=60) | nonsense.map(lambda text: text.encode("utf-8", "replace")))
def test_random_bytes_in_a_file_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes"
    path.write_bytes(content)
    answer = read(lambda _: files.load(path), content.decode("latin-1"))
    assert isinstance(answer, Schedule | FormatError)


@pytest.mark.long
@each("parser", PARSERS)
@each(
    "piece",
    ["0F0 ", "0F0,", "[", '{"a":', "a: b\n", "0 compute: 0F0\n", ";", "x ", "((", "\0", "\n"],
)
def test_long_repetitions_end_at_once(parser: str, piece: str) -> None:
    read(PARSERS[parser], piece * (200_000 // len(piece)))
    read(PARSERS[parser], "slices: 1 " + piece * (200_000 // len(piece)))
