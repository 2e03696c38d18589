"""The command: what it prints, its exit codes, and many rows."""

from json import dumps, loads
from pathlib import Path

import pytest

from estimate.layouts import row
from penstock.cli.main import main

LAYOUT = [
    *("estimate", "--model", "llama3-8b", "--cluster", "h100:8", "--tokens", "8192"),
    *("--batch-tokens", "131072", "--mesh", "tensor=2,pipeline=2", "--schedule", "1f1b"),
    *("--shard", "optimizer"),
]


def test_a_layout_that_fits_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LAYOUT, "--json"]) == 0
    found = loads(capsys.readouterr().out)
    assert (found["fits"], found["replicas"], found["microbatches"]) == (True, 2, 8)


def test_a_layout_that_does_not_fit_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LAYOUT, "--model", "llama3-70b"]) == 1
    printed = capsys.readouterr().out
    assert "lacks" in printed
    assert "GiB of one rank of each device" in printed


def test_misuse_exits_with_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([*LAYOUT, "--attention", "flash3"]) == 2
    assert "one of: flash2" in capsys.readouterr().err
    assert main(["estimate"]) == 2
    assert "model, cluster, tokens, batch_tokens, schedule are missing" in capsys.readouterr().err
    assert main([*LAYOUT, "--from", "rows.jsonl"]) == 2
    assert "leave --model out" in capsys.readouterr().err
    assert main(["estimate", "--from", str(tmp_path / "none")]) == 2
    assert "cannot read" in capsys.readouterr().err


@pytest.mark.matrix
def test_rows_are_answered_line_by_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join([dumps(row()), dumps({"model": "tiny"}), dumps(row(rows=2))]))
    assert main(["estimate", "--from", str(file)]) == 0
    found = [loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ["error" in each for each in found] == [False, True, False]


def test_a_line_that_is_not_text_is_answered_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"\xff\xfe\n" + dumps(row(schedule="1f1b\u2028")).encode() + b"\n")
    assert main(["estimate", "--from", str(file)]) == 0
    errors = [loads(line)["error"] for line in capsys.readouterr().out.splitlines()]
    assert ["is not JSON" in errors[0], "no schedule is called" in errors[1]] == [True, True]


def test_options_reach_the_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*LAYOUT, "--schedule", "interleaved", "-v", "2", "-o", "group=4", "--json"]
    assert main(words) == 0
    assert loads(capsys.readouterr().out)["bubble"] > 0
    assert main([*words, "-o", "grup=4"]) == 2
