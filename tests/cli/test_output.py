"""Colour is for people at a terminal who want it; nothing depends on it."""

import os
import subprocess
import sys

import pytest

from penstock.cli._output import emit, emit_table

COMMAND = [sys.executable, "-m", "penstock"]
LINE = ["compare", "1f1b", "seq1f1b", "-p", "2", "-m", "2", "-k", "2"]


def on_a_terminal(**environment: str) -> str:
    """What a command prints where stdout is a terminal of 80 columns."""
    screen, stdout = os.openpty()
    settings = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "COLUMNS": "80"}
    with subprocess.Popen(
        [*COMMAND, *LINE], stdout=stdout, stderr=subprocess.DEVNULL, env=settings | environment
    ) as running:
        os.close(stdout)
        pieces: list[bytes] = []
        try:
            while piece := os.read(screen, 4096):
                pieces.append(piece)
        except OSError:  # Linux reports the end of a terminal as an error
            pass
        os.close(screen)
    assert running.returncode == 0
    return b"".join(pieces).decode()


@pytest.mark.processes
def test_a_terminal_gets_colour_and_a_bold_best() -> None:
    text = on_a_terminal()
    assert "\x1b[1m" in text
    assert "\x1b[38;" in text or "\x1b[48;" in text


@pytest.mark.processes
@pytest.mark.parametrize("wish", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_who_wants_no_colour_gets_none(wish: dict[str, str]) -> None:
    text = on_a_terminal(**wish)
    assert "\x1b" not in text
    assert "*" in text  # the best is still marked


@pytest.mark.processes
def test_a_screen_without_a_glyph_shows_a_question_mark() -> None:
    done = subprocess.run(
        [*COMMAND, *LINE],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0
    assert "????" in done.stdout


def test_a_line_end_is_added_once(capsys: pytest.CaptureFixture[str]) -> None:
    emit("a")
    emit("b\n")
    emit("")
    assert capsys.readouterr().out == "a\nb\n\n"


def test_columns_of_numbers_stand_right_and_cells_are_taken_literally(
    capsys: pytest.CaptureFixture[str],
) -> None:
    emit_table(("name", "size"), [("[bold]a[/]", "7"), ("b", "12*")])
    assert (
        capsys.readouterr().out
        == """\
name         size
─────────────────
[bold]a[/]      7
b             12*
"""
    )


def test_a_long_table_is_not_broken_on_its_way_into_a_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    emit_table(("text",), [("word " * 100 + "end",)])
    assert "word end" in capsys.readouterr().out


def test_a_table_fits_the_terminal_and_keeps_names_and_numbers_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    row = ("seq1f1b-interleaved", "word " * 30, "0.366412213740458", "word " * 30, "1,600,000")
    emit_table(("name", "what", "time", "why", "ops"), [row])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert all(cell in lines[2] for cell in row[::2])
    assert " ".join(lines).count("word") == 60
