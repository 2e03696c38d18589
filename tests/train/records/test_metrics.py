"""Lines that are whole, valid and taken back to a checkpoint."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RunError
from penstock.train.records.metrics import (
    Lines,
    Metrics,
    Timing,
    read_metrics,
    record_line,
    take_back,
)
from train.samples import usual


def record(step: int) -> Metrics:
    return Metrics(step, 5.6 / step, 1 / 3, 1e-2, 4096 * step, 5.5 if step % 2 == 0 else None)


def write(path: Path, done: int, last: int) -> None:
    """A run that goes on after `done` steps and writes up to the last."""
    lines = Lines(path, done)
    for step in range(done + 1, last + 1):
        lines.write(record(step))
    lines.sync()
    lines.close()


def test_a_step_is_one_line_of_json_with_all_digits(tmp_path: Path) -> None:
    path = tmp_path / "new" / "metrics.jsonl"
    write(path, 0, 2)
    assert path.read_text() == (
        '{"step": 1, "loss": 5.6, "norm": 0.3333333333333333, "rate": 0.01, "tokens": 4096}\n'
        '{"step": 2, "loss": 2.8, "norm": 0.3333333333333333, "rate": 0.01, "tokens": 8192, '
        '"evaluation": 5.5}\n'
    )


@usual
@given(st.floats(), st.floats())
def test_every_number_is_written_as_valid_json_and_reads_back(loss: float, norm: float) -> None:
    line = record_line(replace(record(1), loss=loss, norm=norm))
    found = json.loads(line, parse_constant=pytest.fail)
    finite = [value if value - value == 0 else None for value in (loss, norm)]
    assert [found["loss"], found["norm"]] == finite


def test_what_is_not_known_of_a_step_is_left_out() -> None:
    timing = Timing(3, 0.5, 8192.0, None, (10, 20), None, 1e9)
    assert json.loads(record_line(timing)) == {
        "step": 3,
        "seconds": 0.5,
        "tokens_per_second": 8192.0,
        "memory": [10, 20],
        "time": 1e9,
    }


@pytest.mark.parametrize("done", range(8))
def test_a_run_that_goes_on_writes_what_an_undisturbed_one_writes(
    tmp_path: Path, done: int
) -> None:
    write(tmp_path / "undisturbed", 0, 9)
    write(tmp_path / "resumed", 0, 7)
    write(tmp_path / "resumed", done, 9)
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "undisturbed").read_bytes()


def test_a_line_cut_off_anywhere_is_repaired(tmp_path: Path) -> None:
    write(tmp_path / "undisturbed", 0, 3)
    whole = (tmp_path / "undisturbed").read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole), 7):
        path = tmp_path / "killed"
        path.write_bytes(whole[:end])
        write(path, 1, 3)
        assert path.read_bytes() == whole
        assert sorted(tmp_path.glob("*.previous")) == []


def test_damage_in_the_middle_is_kept_beside_the_repaired_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [record_line(record(step)) for step in (1, 2, 3)]
    damaged = lines[0] + "\0\0{\n[]\n" + lines[1] + lines[2]
    path.write_text(damaged)
    take_back(path, 2)
    assert path.read_text() == lines[0] + lines[1]
    assert (tmp_path / "metrics.jsonl.previous").read_text() == damaged


def test_a_run_started_anew_keeps_the_lines_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, 0, 3)
    before = path.read_bytes()
    write(path, 0, 1)
    assert path.read_bytes() == before[: before.index(b"\n") + 1]
    assert (tmp_path / "metrics.jsonl.previous").read_bytes() == before


def test_a_file_that_needs_no_change_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, 0, 3)
    identity = path.stat().st_ino
    take_back(path, 3)
    assert path.stat().st_ino == identity


def test_a_full_disk_is_our_own_error(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.symlink_to("/dev/full")
    with pytest.raises(RunError, match=r"cannot write .*metrics\.jsonl.*No space left"):
        Lines(path, 0).write(record(1))


def test_a_folder_that_cannot_be_written_is_our_own_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write"):
        Lines(tmp_path / "file" / "metrics.jsonl", 0)


def test_what_can_be_read_is_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_metrics(path) == []
    path.write_text(record_line(record(1)) + "{\n" + record_line(record(2))[:-5])
    assert read_metrics(path) == [json.loads(record_line(record(1)))]
