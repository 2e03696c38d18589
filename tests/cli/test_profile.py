"""`penstock profile` without measuring: words, refusals, comparison and page."""

from json import dumps
from pathlib import Path

import pytest

from penstock.cli.main import main
from profiling.made_up import profile


@pytest.fixture
def written(tmp_path: Path) -> str:
    path = tmp_path / "p.json"
    path.write_text(dumps(profile()))
    return str(path)


def test_two_profiles_are_compared(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "compare", written, written]) == 0
    assert "second / first" in capsys.readouterr().out


def test_profiles_of_different_steps_are_told_apart(
    tmp_path: Path, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    case = profile()["case"]
    other.write_text(dumps(profile(case=case | {"tokens": 1024, "lengths": [1024]})))
    assert main(["profile", "compare", written, str(other)]) == 0
    said = capsys.readouterr().err
    assert "steps differ: 256 tokens and 1,024 tokens; 4 slices and 1 slice" in said
    assert main(["profile", "compare", written, written]) == 0
    assert capsys.readouterr().err == ""


def test_profiles_of_two_machines_are_compared_when_forced(
    tmp_path: Path, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    other.write_text(dumps(profile(made=profile()["made"] | {"device": "another"})))
    assert main(["profile", "compare", written, str(other)]) == 2
    assert "differ in device" in capsys.readouterr().err
    assert main(["profile", "compare", written, str(other), "--force"]) == 0


def test_a_page_of_what_lacks_its_step_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.json"
    for change in ({"step": {}}, {"memory": 3}, {"modules": [1]}, {"made": None}):
        path.write_text(dumps(profile(**change)))
        for words in (
            ["report", str(path), str(tmp_path / "p.html")],
            ["compare", *[str(path)] * 2],
        ):
            assert main(["profile", *words]) == 2
            assert "lacks a part of a profile" in capsys.readouterr().err


@pytest.mark.torch
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tiny", "--device", "tpu"], "one of: auto, cpu, cuda"),
        (["tiny", "--precision", "int3"], "one of: bf16"),
        (["tinny"], "tiny"),
        (["tiny", "--tokens", "16", "-k", "9"], "give 18 tokens or more"),
        (["matrix", "tiny", "--cell", "recompte"], "recompute"),
        (["matrix", "tiny", "--out", "missing/cells.jsonl"], "give --out a path in a folder"),
        (["matrix", "tiny", "--out", "."], "it is a folder"),
        (["tiny", "--out", "missing/p.json"], "give --out a path in a folder"),
        (["tiny", "--out", "p", "--html", "p"], "--out and --html would both be written to"),
    ],
)
def test_misuse_exits_with_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("share", ["nan", "inf"])
def test_an_error_that_none_exceeds_is_refused(
    share: str, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", "check", written, "--within", share]) == 2
    assert f"--within is {share}" in capsys.readouterr().err


@pytest.mark.torch
@pytest.mark.parametrize("verb", ["measure", "matrix"])
def test_a_gpu_that_is_not_there_is_refused_by_its_flag(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["profile", verb, "tiny", "--device", "cuda"]) == 2
    said = capsys.readouterr().err
    assert "leave out --device" in said
    assert "run.device" not in said


@pytest.mark.torch
def test_a_case_that_is_none_is_refused(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "check", written, "--case", "tiny:x"]) == 2
    assert "MODEL:TOKENS:SLICES:MICROBATCHES" in capsys.readouterr().err
