"""`check`: a proof in words, or findings that name the op at fault."""

import io
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Penstock
from penstock import files

WRONG_ORDER = """\
devices: 2
stages: 2
slices: 2 x 2
0 compute: 0F0 0F0.1 0F1 0B0 0F1.1 0B0.1 0B1.1 0B1
1 compute: 1F0 1F0.1 1B0 1F1 1B0.1 1F1.1 1B1.1 1B1
"""
"""Seq1F1B, but the backward slices of microbatch 0 run left to right."""


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.txt"
    path.write_text(WRONG_ORDER)
    return path


def test_backward_slices_from_left_to_right_are_refuted_by_rule_and_op(
    penstock: Penstock, broken: Path
) -> None:
    answer = penstock(f"check {broken}")
    assert answer.code == 1
    assert "slice-order" in answer.out
    assert "0B0 (device 0, position 3)" in answer.out
    assert "from the last to the first" in answer.out


def test_findings_as_json_carry_rule_op_device_message_and_hint(
    penstock: Penstock, broken: Path
) -> None:
    answer = penstock(f"check {broken} --json")
    assert (answer.code, answer.err) == (1, "")
    assert answer.data["proven"] is False
    first = answer.data["findings"][0]
    assert set(first) == {"rule", "ops", "device", "message", "hint"}
    assert (first["rule"], first["ops"][0], first["device"]) == ("slice-order", "0B0", 0)


def test_a_refuted_schedule_is_neither_drawn_nor_priced(penstock: Penstock, broken: Path) -> None:
    for verb in ("show", "simulate", "compare"):
        answer = penstock(f"{verb} {broken}")
        assert (answer.code, answer.out) == (1, "")
        assert answer.err.startswith("error: ")
        assert "0B0" in answer.err
        assert "\nhint: " in answer.err


def test_a_proof_says_what_was_proven(penstock: Penstock) -> None:
    answer = penstock("check seq1f1b -p 4 -m 8 -k 4")
    assert (answer.code, answer.err) == (0, "")
    assert "ops        256, " in answer.out
    assert "ascending" in answer.out


def test_a_file_that_cannot_be_read_is_misuse_with_line_and_column(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "garbage.txt"
    path.write_text("devices: 2\nstages: 2\nslices: 1\n0 compute: 0F0 0?0\n")
    answer = penstock(f"check {path}")
    assert (answer.code, answer.out) == (2, "")
    assert "line 4" in answer.err
    assert "\nhint: " in answer.err


def test_a_file_says_its_own_size(penstock: Penstock, broken: Path) -> None:
    answer = penstock(f"check {broken} -p 4")
    assert answer.code == 2
    assert "has its own size, but -p was given" in answer.err


def test_a_file_with_far_too_many_devices_is_refused_at_once(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "wide.txt"
    path.write_text("devices: 5000\nstages: 5000\nslices: 1\n0 compute: 0F0 0B0\n")
    answer = penstock(f"check {path}")
    assert (answer.code, answer.out) == (2, "")
    assert "5,000 devices is deeper than 4,096" in answer.err


def test_a_memory_limit_is_proven_or_refuted_with_the_op(penstock: Penstock) -> None:
    assert penstock("check 1f1b -p 4 -m 8 --limit 4").code == 0
    answer = penstock("check 1f1b -p 4 -m 8 --limit 3.5")
    assert answer.code == 1
    assert "device 0 may hold 4, above the limit of 3.5, first at 0F3" in answer.out
    assert penstock("check 1f1b -p 4 -m 8 --limit lots").code == 2


def test_a_schedule_that_depends_on_prices_is_proven_at_those_that_are_given(
    penstock: Penstock,
) -> None:
    request = "check zb-auto -p 3 -m 4 -o limit=4 --sizes act=2,stash=2 --limit 4 --json"
    assert penstock(request).data["proven"]


class _Endless(io.RawIOBase):
    """A stream that has always more."""

    taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        self.taken += len(room)
        return len(room)


def test_a_stream_without_end_is_read_only_as_far_as_a_schedule_can_be(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 1_000)
    stream = _Endless()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(stream)))
    answer = penstock("check -")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: stdin is larger than 1,000 bytes\nhint: ")
    assert stream.taken <= 100_000


@pytest.mark.parametrize("verb", ["check", "simulate", "show"])
def test_a_name_that_is_too_long_for_a_file_is_no_schedule(penstock: Penstock, verb: str) -> None:
    answer = penstock(f"{verb} {'x' * 300} -p 2 -m 2")
    assert answer.code == 2
    assert answer.err.startswith(f"error: no schedule is called '{'x' * 60}...'\n")
