"""Pictures in the terminal, and files that are written whole or not at all."""

import json
from pathlib import Path

import pytest

from cli.conftest import Penstock
from penstock.core.schedule import Schedule
from penstock.files import load
from penstock.schedules import build


def small() -> Schedule:
    return build("seq1f1b", devices=2, microbatches=2, slices=2)


NAME = "show seq1f1b -p 2 -m 2 -k 2"


def test_the_terminal_gets_one_line_per_device(penstock: Penstock) -> None:
    answer = penstock(NAME)
    assert (answer.code, answer.err) == (0, "")
    assert "\x1b" not in answer.out  # not a terminal, so no colour
    lines = [line for line in answer.out.splitlines() if line.strip()[:1].isdigit()]
    assert [line.split()[0] for line in lines] == ["0", "1"]
    assert "F0.1" in lines[0]


def test_width_bounds_the_picture(penstock: Penstock) -> None:
    wide, narrow = penstock(f"{NAME} --width 200").out, penstock(f"{NAME} --width 60").out
    longest = [max(map(len, text.splitlines()[1:])) for text in (wide, narrow)]
    assert longest[1] <= 60 < longest[0] <= 200


@pytest.mark.parametrize("flag", ["text", "csv", "svg", "html", "trace"])
def test_a_format_goes_to_stdout_or_to_a_file_alike(
    penstock: Penstock, tmp_path: Path, flag: str
) -> None:
    line = "show 1f1b -p 2 -m 2"
    path = tmp_path / "out"
    printed, written = penstock(f"{line} --{flag} -"), penstock(f"{line} --{flag} {path}")
    assert (printed.code, printed.err) == (0, "")
    assert (written.code, written.out, written.err) == (0, "", f"wrote {path}\n")
    assert path.read_text() == printed.out


def test_several_files_are_written_at_once(penstock: Penstock, tmp_path: Path) -> None:
    answer = penstock(f"{NAME} --svg {tmp_path / 'a.svg'} --html {tmp_path / 'a.html'} --text -")
    assert answer.code == 0
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert "<html" in (tmp_path / "a.html").read_text()
    assert "0 compute: 0F0 0F0.1" in answer.out


def test_text_and_json_are_read_back_as_the_same_schedule(
    penstock: Penstock, tmp_path: Path
) -> None:
    for flag, name in (("--text", "a.txt"), ("--json", "a.json")):
        path = tmp_path / name
        answer = penstock(f"{NAME} {flag} -") if flag == "--text" else penstock(f"{NAME} {flag}")
        path.write_text(answer.out)
        assert load(str(path)) == small()
        assert penstock(f"show {path}").out.count("\n") == penstock(NAME).out.count("\n")


def test_a_trace_is_json(penstock: Penstock) -> None:
    assert json.loads(penstock(f"{NAME} --trace -").out)


def test_prices_move_the_picture(penstock: Penstock) -> None:
    assert "makespan 9 " in penstock("show 1f1b -p 2 -m 2").out
    assert "makespan 12 " in penstock("show 1f1b -p 2 -m 2 --times F=2").out


@pytest.mark.parametrize("place", ["missing/a.svg", "."])
def test_a_path_that_cannot_be_written_is_misuse(
    penstock: Penstock, tmp_path: Path, place: str
) -> None:
    answer = penstock(f"{NAME} --svg {tmp_path / place}")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert "\nhint: " in answer.err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_when_one_format_cannot_say_it(
    penstock: Penstock, tmp_path: Path
) -> None:
    kept = tmp_path / "a.svg"
    kept.write_text("old")
    answer = penstock(f"{NAME} --svg {kept} --csv {tmp_path / 'a.csv'}")  # CSV has no slices
    assert answer.code == 2
    assert "slice" in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]
    assert kept.read_text() == "old"


def test_a_refused_request_leaves_an_old_file_as_it_was(penstock: Penstock, tmp_path: Path) -> None:
    kept = tmp_path / "a.svg"
    kept.write_text("old")
    assert penstock(f"show seq1f1b -p 0 -m 2 --svg {kept}").code == 2
    assert kept.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1
