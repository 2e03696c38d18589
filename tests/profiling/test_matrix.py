"""Cells of a matrix, and files of them that end in the middle of a line."""

from json import dumps
from pathlib import Path

import pytest

from penstock.errors import FormatError, ShapeError
from penstock.profiling.matrix import cells_of, known_rows, row_of
from profiling.made_up import CASE


def test_every_switch_has_a_cell_beside_the_plain_step() -> None:
    names = [cell.name for cell in cells_of(CASE, ())]
    assert names == ["plain", "recompute", "offload", "other-precision", "plain-kernels"]
    (_, both) = cells_of(CASE, ["recompute+other-precision"])
    assert (both.changes, both.switched.precision) == (("recompute",), "bf16")


@pytest.mark.parametrize("name", ["recompte", "recompute+offload"])
def test_a_cell_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ShapeError):
        [*cells_of(CASE, [name])]


def test_what_was_cut_off_is_run_again(tmp_path: Path) -> None:
    plain, again, *_ = cells_of(CASE, ())
    path = tmp_path / "cells.jsonl"
    assert known_rows(path) == []
    lines = [dumps(cell.key | {"status": "out of memory"}) + "\n" for cell in (plain, again)]
    path.write_text(lines[0] + lines[1][:-10])
    rows = known_rows(path)
    assert row_of(rows, plain) == plain.key | {"status": "out of memory"}
    assert row_of(rows, again) is None


def test_a_cell_without_an_end_of_its_line_counts(tmp_path: Path) -> None:
    plain, *_ = cells_of(CASE, ())
    path = tmp_path / "cells.jsonl"
    path.write_text(dumps(plain.key | {"status": "out of memory"}))
    assert len(known_rows(path)) == 1


@pytest.mark.parametrize("text", ["my notes", '{"a": 1}', '{"model": "tiny"}', '{"mo": '])
def test_a_file_of_something_else_is_refused_and_not_written_over(
    tmp_path: Path, text: str
) -> None:
    """Its only line may have no end, as the last one of an interrupted matrix."""
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(FormatError):
        known_rows(path)
