"""`verify`: one row for each run, exit code 1 for one that is not equal, and none for nonsense."""

import sys
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import torch

from cli.conftest import Penstock
from penstock.cli import _progress, verify
from penstock.run.process.machine import Machine
from penstock.run.program.unsupported import why_not
from penstock.schedules import build, registry
from penstock.verify.cases import smallest, trials_of
from penstock.verify.compare import Difference
from penstock.verify.variants import ON_DEVICE, VARIANTS, Trial
from penstock.verify.verifier import VerdictRow

pytestmark = pytest.mark.torch

FIELDS = {
    *("name", "variant", "devices", "replicas", "tensor", "sequence", "ring", "shard"),
    *("microbatches", "chunks", "slices", "device"),
    *("dtype", "tolerance", "loss_error", "grad_error", "worst", "bit_equal", "equal", "seconds"),
}
ON_GPU = {
    *("back_end", "loss_tolerance"),
    *("difference_from_one_process", "loss_difference_from_one_process"),
}
"""Fields of rows that were not computed on the CPU."""
HALVED = {variant.name for variant in VARIANTS if variant.halved}
"""Variants in which ranks add up shares of their own, so that bits are not claimed."""
PARAMETER = "model.layers.3.self_attn.k_proj.weight"
NEAR = Difference(1e-8, 1e-7, PARAMETER, "")


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a verifier without processes give every trial the same verdict."""

    def judge(difference: Difference, bits: tuple[str, ...] = ()) -> None:
        def row(_: Any, trial: Trial) -> VerdictRow:
            return VerdictRow(trial, difference, bits if trial.bitwise else None, 0.25)

        monkeypatch.setattr("penstock.verify.verifier.Verifier.row", row)

    return judge


@pytest.mark.processes
def test_a_schedule_is_run_for_real_and_is_equal(penstock: Penstock) -> None:
    answer = penstock("verify seq1f1b -p 2 -m 2 -k 2 --json")
    assert (answer.code, answer.data["name"], answer.data["equal"]) == (0, "seq1f1b", True)
    assert answer.data["grad_error"] < 1e-5
    rows = answer.data["rows"]
    assert {row["variant"] for row in rows} == {variant.name for variant in VARIANTS}
    for row in rows:
        assert set(row) == FIELDS
        assert row["equal"] is True
        assert max(row["loss_error"], row["grad_error"]) <= row["tolerance"]
        assert row["bit_equal"] is (None if row["variant"] in HALVED else True)


@pytest.mark.long
def test_all_has_a_row_for_every_schedule_and_variant(
    penstock: Penstock, judged: Callable[..., None]
) -> None:
    judged(Difference(1e-15, 2e-14, PARAMETER, ""))
    answer = penstock("verify --all --json")
    assert answer.code == 0
    built = {name: spec.build(smallest(spec)) for name, spec in registry().items()}
    runnable = {name for name, schedule in built.items() if not why_not(schedule)}
    left_out = [line for line in answer.err.splitlines() if ": left out, " in line]
    assert len(answer.data) + len(left_out) == len(runnable) * len(VARIANTS)
    order = [(row["name"], row["variant"]) for row in answer.data]
    assert order == sorted(order)
    assert {row["name"] for row in answer.data} == runnable
    for name in set(registry()) - runnable:
        assert f"note: {name}: not run, {name} has " in answer.err
    assert {row["tolerance"] for row in answer.data if row["dtype"] == "float64"} == {1e-10}
    assert {row["tolerance"] for row in answer.data if row["dtype"] == "float32"} == {1e-5}


def test_the_table_ends_with_the_verdict(penstock: Penstock, judged: Callable[..., None]) -> None:
    judged(Difference(1e-15, 2e-14, PARAMETER, ""))
    answer = penstock("verify seq1f1b -p 4 -m 4 -k 2")
    lines = answer.out.splitlines()
    assert answer.code == 0
    assert lines[-1] == "16 rows, all equal, largest error 2e-14 in float64, 2e-14 in float32"
    assert "2 x 2" in next(line for line in lines if " replicas " in line)
    assert "2 of tensor 2" in next(line for line in lines if " tensor " in line)
    assert "verifying 16 runs on 4 processes" in answer.err


def test_a_wrong_gradient_is_named_with_its_error_and_exits_1(
    penstock: Penstock, judged: Callable[..., None]
) -> None:
    judged(Difference(0.0, 0.25, PARAMETER, "its norm is 3, not 4"))
    answer = penstock("verify gpipe -p 3 -m 4")
    assert answer.code == 1
    assert f"gpipe tied: {PARAMETER} differs by 0.25: its norm is 3, not 4" in answer.out
    assert "9 rows, 9 not equal" in answer.out
    assert "note: gpipe replicas: left out" in answer.err


def test_another_bit_is_not_equal_where_bits_are_claimed(
    penstock: Penstock, judged: Callable[..., None]
) -> None:
    judged(Difference(0.0, 1e-16, PARAMETER, ""), bits=(PARAMETER, "model.norm.weight"))
    answer = penstock("verify gpipe -p 2 -m 2 --json")
    unequal = {row["variant"] for row in answer.data["rows"] if not row["equal"]}
    assert answer.code == 1
    assert unequal == {variant.name for variant in VARIANTS} - HALVED


def test_an_infinite_error_is_null_in_json(penstock: Penstock, judged: Callable[..., None]) -> None:
    judged(Difference(inf, inf, PARAMETER, "no process holds its gradient"))
    answer = penstock("verify gpipe -p 2 -m 2 --json")
    assert (answer.code, answer.data["equal"]) == (1, False)
    assert (answer.data["loss_error"], answer.data["grad_error"]) == (None, None)


def test_a_file_is_verified_without_replicas(
    penstock: Penstock, judged: Callable[..., None], tmp_path: Path
) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("devices: 2\nstages: 2\nslices: 1\n0 compute: 0F0 0B0\n1 compute: 1F0 1B0\n")
    judged(Difference(0.0, 0.0, PARAMETER, ""))
    answer = penstock(f"verify {path} --json")
    assert answer.code == 0
    assert "replicas" not in {row["variant"] for row in answer.data["rows"]}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("verify", "nothing to verify"),
        ("verify gpipe --all", "--all chooses"),
        ("verify --all -p 4", "-p was given"),
        ("verify --model gemma2-9b -p 4", "--model without a schedule chooses"),
        ("verify gpipe -p 4 -m 8 --model gema2-9b", "no model is called 'gema2-9b'"),
        ("verify gpip -p 4 -m 8", "no schedule is called 'gpip'"),
        ("verify gpipe -p 4", "number of microbatches"),
        ("verify gpipe -p 4 -m 8 -k 2", "does not cut sequences"),
        ("verify gpipe -p 65 -m 8", "65 processes are more than"),
        ("verify gpipe -p 2 -m 2 --device tpu", "'tpu' is not one of"),
        ("verify gpipe -p 2 -m 2 --shard weights", "'weights' is not one of"),
    ],
)
def test_misuse_is_refused_before_anything_starts(
    penstock: Penstock, line: str, words: str
) -> None:
    answer = penstock(line)
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err
    assert "\nhint: " in answer.err


def test_a_gpu_that_is_not_there_is_refused_at_once(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    answer = penstock("verify --all --device cuda")
    assert (answer.code, answer.out) == (2, "")
    assert "--device is cuda, but this machine has no CUDA device" in answer.err
    assert "\nhint: " in answer.err


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rows come from a GPU that is not there."""

    def row(_: Any, trial: Trial) -> VerdictRow:
        return VerdictRow(trial, Difference(1e-9, 2e-6, PARAMETER, ""), None, 0.25, NEAR, "nccl")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("penstock.verify.verifier.Verifier.row", row)


@pytest.mark.usefixtures("on_a_gpu")
def test_rows_of_a_gpu_say_the_back_end_and_the_difference_from_one_process(
    penstock: Penstock,
) -> None:
    rows = penstock("verify gpipe -p 2 -m 2 --device cuda --json").data["rows"]
    assert {row["variant"] for row in rows} == {variant.name for variant in ON_DEVICE["cuda"]}
    for row in rows:
        assert row.keys() == FIELDS | ON_GPU
        assert (row["device"], row["back_end"], row["bit_equal"]) == ("cuda", "nccl", None)
        assert row["difference_from_one_process"] == NEAR.gradient
        assert row["loss_difference_from_one_process"] == NEAR.loss
    tolerances = {(row["dtype"], row["tolerance"], row["loss_tolerance"]) for row in rows}
    assert tolerances == {("float32", 5e-5, 1e-6), ("bfloat16", 8e-2, 1e-4)}


@pytest.mark.usefixtures("on_a_gpu")
def test_the_table_of_a_gpu_ends_with_the_place(penstock: Penstock) -> None:
    lines = penstock("verify gpipe -p 2 -m 2 --device cuda").out.splitlines()
    assert "from one process" in lines[0]
    assert lines[-2] == "19 rows, all equal, largest error 2e-06 in float32, 2e-06 in bfloat16"
    assert lines[-1] == "19 of 19 equal on cuda over nccl"


def test_without_torch_the_extra_to_install_is_named(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "penstock.model.stages.stage", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    answer = penstock("verify gpipe -p 2 -m 2")
    assert (answer.code, answer.out) == (2, "")
    assert "running needs torch, which is not installed" in answer.err
    assert "penstock[run]" in answer.err


def test_what_the_executor_cannot_run_is_refused_by_name(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "held.txt"
    path.write_text(
        "devices: 2\nstages: 2\nslices: 1 x 2\nafter: 0F1 1F0\n"
        "0 compute: 0F0 0F1 0B0 0B1\n1 compute: 1F0 1B0 1F1 1B1\n"
    )
    answer = penstock(f"verify {path}")
    assert (answer.code, answer.out) == (2, "")
    assert "`after` orders between devices" in answer.err


def test_a_mesh_with_full_sharding_is_given_to_every_run(
    penstock: Penstock, judged: Callable[..., None]
) -> None:
    judged(Difference(0.0, 0.0, PARAMETER, ""))
    answer = penstock("verify gpipe -p 2 -m 2 --mesh replicas=2,sequence=2 --shard full --json")
    plain = {variant.name for variant in VARIANTS if not variant.halved}
    assert {row["variant"] for row in answer.data["rows"]} == plain
    assert {(row["shard"], row["replicas"]) for row in answer.data["rows"]} == {("full", 2)}


@pytest.mark.parametrize(
    ("options", "lane", "words", "hint"),
    [
        ("--shard full", "0Z0", "has collective lanes already", "shard a schedule only once"),
        ("--shard full", "1G0", "0F0 reads weights that nothing gathers", "or none"),
        ("", "0G0 1G0", "has ops of kind G, but the weights", "penstock verify: --shard full"),
    ],
    ids=["reductions alone", "one stage is gathered", "whole weights"],
)
def test_weights_that_cannot_be_gathered_as_asked_are_refused_before_anything_starts(
    penstock: Penstock, tmp_path: Path, options: str, lane: str, words: str, hint: str
) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(
        f"devices: 1\nstages: 2\nslices: 1\n0 compute: 0F0 1F0 1B0 0B0\n0 collective: {lane}\n"
    )
    answer = penstock(f"verify {path} {options}")
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err
    assert hint in answer.err


def test_a_refuted_schedule_is_not_run(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "broken.txt"
    path.write_text("devices: 1\nstages: 1\nslices: 1\n0 compute: 0B0 0F0\n")
    answer = penstock(f"verify {path}")
    assert (answer.code, answer.out) == (1, "")
    assert "0B0" in answer.err


def test_an_explanation_says_everything_that_is_wrong() -> None:
    trials, _ = trials_of(build("gpipe", devices=2, microbatches=2), None)
    row = VerdictRow(trials[0], Difference(0.5, 0.25, PARAMETER, "so it is"), (PARAMETER, "b"), 0.0)
    assert row.explanation == (
        f"{PARAMETER} differs by 0.25: so it is; the loss differs by 0.5; "
        f"{PARAMETER} (and 1 more) has other bits than in one process"
    )
    assert replace(row, difference=Difference(0.0, 0.0, "", ""), unequal_bits=()).explanation == ""


def test_more_processes_than_the_machine_has_room_for_are_refused(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "this_machine", lambda: Machine(cores=0.1, free=None))
    answer = penstock("verify gpipe -p 8 -m 8")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: 8 processes would share 0.1 cores, more than 32 on each\n")


def test_without_a_terminal_lines_say_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_progress, "EVERY", 0.01)
    for number in _progress.show_progress([1, 2], "verified on 64 processes"):
        while f"verified on 64 processes: {number - 1} of 2, 0 s" not in capsys.readouterr().err:
            sleep(0.001)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.long
@pytest.mark.torch
@pytest.mark.processes
def test_the_command_says_where_it_ran(penstock: Penstock) -> None:
    answer = penstock("verify 1f1b -p 2 -m 2 --device cuda")
    assert answer.code == 0
    assert answer.out.splitlines()[-1].startswith("11 of 11 equal on cuda over ")
