"""The command: what it prints and writes, and its exit codes."""

import re
from json import dumps, loads
from pathlib import Path
from unittest.mock import Mock

import pytest

from penstock.cli.main import main
from penstock.plan.goodput import Failures, best_goodput
from penstock.train.config.load import load
from profiling.made_up import profile

pytestmark = [pytest.mark.long, pytest.mark.processes]

PROBLEM = [
    *("plan", "--model", "llama3.2-1b", "--cluster", "h100:4", "--tokens", "8192"),
    *("--batch-tokens", "65536", "-k", "2", "--rows", "1"),
]


def test_a_plan_is_found_explained_saved_and_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, page = tmp_path / "plan.toml", tmp_path / "plan.html"
    words = ["--why", "2", "--save", str(file), "--html", str(page), "--top", "2"]
    assert main([*PROBLEM, *words, "--mesh", "tensor=1", "--pick", "2"]) == 0
    printed = capsys.readouterr().out
    assert "utilisation" in printed
    assert "candidates," in printed
    assert "- 4 GPUs are" in printed
    settings = load(file)
    assert settings.pipeline.devices * settings.mesh.shape.ranks(1) == 4
    assert page.read_text().startswith("<!doctype html>")
    assert "1.24B parameters on h100:4: " in page.read_text()
    assert re.search(r"device \d needs [\d.]+ of 80 GiB", page.read_text())


def test_a_precision_that_few_kernels_compute_in_is_planned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fp32 = ["--precision", "fp32", "--attention", "unfused", "--tokens", "1024"]
    assert main([*PROBLEM, *fp32, "--mesh", "tensor=1,sequence=1,pipeline=1"]) == 0
    printed = capsys.readouterr().out
    assert "tokens/s" in printed
    assert "--attention flash" not in printed


def test_scripts_get_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PROBLEM, "--json", "--top", "1", "--mesh", "sequence=1", "--why", "1"]) == 0
    found = loads(capsys.readouterr().out)
    assert {"plans", "nearest", "relax", "candidates", "simulated", "left_open"} <= {*found}
    assert found["why"][0].startswith("4 GPUs are")
    (plan,) = found["plans"]
    assert plan["fits"]
    assert plan["layout"]["mesh"]["sequence"] == 1
    assert plan["step_seconds"] > 0


def test_of_fewer_plans_than_were_wanted_one_that_there_is_can_be_picked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = str(tmp_path / "plan.toml")
    assert main([*PROBLEM, "--cluster", "h100:1", "--pick", "2", "--save", file]) == 2
    assert "only one was found; give 1" in capsys.readouterr().err


def test_memory_of_a_model_for_a_test_is_in_mib(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "host.json"
    path.write_text(dumps(profile()))
    words = ["--profile", str(path), "--tokens", "512", "--batch-tokens", "1024", "--top", "1"]
    assert main(["plan", "--model", "tiny", *words, "--json"]) == 0
    needed = max(each["total"] for each in loads(capsys.readouterr().out)["plans"][0]["peak_bytes"])
    assert main(["plan", "--model", "tiny", *words]) == 0
    head, _, first = capsys.readouterr().out.splitlines()[:3]
    assert "MiB" in head
    assert f" {needed / 2**20:.1f} " in first


def test_where_nothing_fits_it_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    large = ["--model", "llama3-70b", "--mesh", "sequence=1", "--cluster", "h100:2"]
    assert main([*PROBLEM, *large]) == 1
    printed = capsys.readouterr().out
    assert "no plan fits into 80 GiB" in printed
    assert "needs" in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batch-tokens", "100000"], "give 98,304 or 106,496"),
        (["--mesh", "replicas=4", "--batch-tokens", "73728"], "give 65,536 or 98,304"),
        (["--mesh", "tensor=3"], "give sizes whose product divides 4"),
        (["--schedule", "1f1c"], "no schedule is called '1f1c'"),
        (["--schedule", "chronos"], "chronos is not planned with"),
        (["--pick", "9", "--mesh", "tensor=4", "--save", "plan.toml"], "there is no plan 9"),
    ],
)
def test_misuse_exits_with_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*PROBLEM, *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--save", "missing/plan.toml"], "is not a folder that can be written to"),
        (["--html", "."], "it is a folder"),
        (["--save", f"{__file__}/plan.toml"], "is not a folder that can be written to"),
        (["--save", "a" * 300], "File name too long"),
        (["--save", "-"], "--save is '-'"),
        (["--html", ""], "--html is empty"),
        (["--save", "a.toml", "--html", "./a.toml"], "--save and --html would both be written to"),
        (["--why", "6"], "there is no plan 6"),
        (["--pick", "2", "--top", "1"], "give 1 to 1"),
        (["--draws", "5"], "--draws says nothing without --jitter"),
        (["--restart-seconds", "5"], "--restart-seconds says nothing without --mtbf-hours"),
        (["--mtbf-hours", "1e300"], "give times from 0 to 1e+12"),
    ],
)
def test_what_would_be_in_vain_is_refused_before_the_search(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*PROBLEM, *words]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert "candidates" not in said.err
    assert [*tmp_path.iterdir()] == []


SMALL = [*PROBLEM, "--mesh", "tensor=1,sequence=1", "--schedule", "seq1f1b", "--top", "1"]


def test_a_plan_is_written_also_where_nobody_reads_the_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As with `| head -1`, which reads a line and goes."""
    file, page = tmp_path / "plan.toml", tmp_path / "plan.html"
    monkeypatch.setattr("penstock.cli.plan.emit_table", Mock(side_effect=BrokenPipeError))
    with pytest.raises(BrokenPipeError):
        main([*SMALL, "--save", str(file), "--html", str(page)])
    assert load(file).pipeline.schedule == "seq1f1b"
    assert page.read_text().startswith("<!doctype html>")


def test_failures_and_jitter_are_told_of_each_plan(capsys: pytest.CaptureFixture[str]) -> None:
    scale = ["--mtbf-hours", "50000", "--checkpoint-seconds", "30", "--jitter", "0.1"]
    assert main([*SMALL, *scale, "--draws", "5"]) == 0
    head, _, row, *_ = capsys.readouterr().out.splitlines()
    assert "with jitter s" in head
    assert row.split()[-2].endswith("%")
    assert main([*SMALL, *scale, "--draws", "5", "--json"]) == 0
    (plan,) = loads(capsys.readouterr().out)["plans"]
    failures = Failures(4, 50_000, 30.0, 600.0)
    wanted = best_goodput(plan["step_seconds"] * plan["jitter"]["mean"], failures)
    assert plan["goodput"] == wanted._asdict()
    assert 1 < plan["jitter"]["p95"] < 1.2


@pytest.mark.parametrize(
    "flags", [("--mtbf-hours", "-1"), ("--mtbf-hours", "inf"), ("--jitter", "nan")]
)
def test_times_without_sense_are_refused_before_the_search(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, str]
) -> None:
    assert main([*SMALL, *flags]) == 2
    assert f"{flags[0]} is {flags[1]}" in capsys.readouterr().err
