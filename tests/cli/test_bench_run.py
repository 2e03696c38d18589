"""`penstock bench run` on small sizes: every part is measured and printed."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from cli.conftest import Penstock
from loops import each
from penstock.bench import choice
from penstock.bench.run import accepted_case, read_bench_settings
from penstock.bench.steps import step_ratios
from penstock.cli import bench
from penstock.run.process.machine import Machine
from penstock.schedules import registry

pytestmark = pytest.mark.torch

TINY = {"layers": 4, "hidden": 16, "ffn": 24, "heads": 2, "kv_heads": 2, "head_size": 8}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real settings, with a smaller model and fewer schedules."""
    settings: dict[str, Any] = {**read_bench_settings()}
    model = {**TINY, "vocabulary": 32}
    ours = [{"schedule": "1f1b"}, {"schedule": "seq1f1b", "slices": [2, 999]}]
    rivals = settings["real"]["rivals"][:2]
    changes: Mapping[str, Mapping[str, Any]] = {
        "host": {"microbatches": 4},
        "emulate": {"repeats": 1, "shortest": 0.005},
        "real": {"microbatches": 4, "model": model, "ours": ours, "rivals": rivals},
        "cells": {"microbatches": 2, "model": model, "ours": settings["cells"]["ours"][:2]},
        "loans": {"microbatches": 2, "model": model, "slices": 4},
        "plans": {"microbatches": 4, "groups": [1, 4], "delays": [0.0, 0.1], "phase": 4}
        | {"solved_microbatches": 4},
        "unequal": {"documents": 40, "longest": 4096, "slice_tokens": 512, "batches": 1}
        | {"seconds": 0.3},
        "policies": {"documents": 12, "longest": 2048, "median": 60, "batches": 1}
        | {"seconds": 0.1, "sequence": 2, "small": {**model, "layers": 2}},
        "profile": {"model": model, "slices": [1, 2], "repeats": 1},
    }
    changed = {part: {**values, **changes.get(part, {})} for part, values in settings.items()}
    monkeypatch.setattr(choice, "read_bench_settings", lambda: changed)


@pytest.mark.matrix
@pytest.mark.processes
@pytest.mark.usefixtures("small")
def test_policies_are_predicted_measured_and_planned_ahead(penstock: Penstock) -> None:
    answer = penstock("bench run --policies --ranks 2 --json")
    assert answer.code == 0, answer.err
    rows = answer.data["policies"]["rows"]
    assert [row["policy"] for row in rows[:3]] == ["pack", "chunk", "flex"]
    assert all(row["predicted"] > 0 < row["measured"] for row in rows)
    assert all(row["waiting"] >= 0 and row["planning"] > 0 for row in rows)
    assert rows[0]["predicted_gain"] == 1
    assert all(row["same_loss"] for row in rows if row["ops"] == "computed")
    uneven = penstock("bench run --policies --ranks 3")
    assert uneven.code == 2
    assert "3 ranks cannot be devices of 2 ranks that share tokens" in uneven.err


@pytest.mark.processes
@pytest.mark.usefixtures("small")
def test_steps_are_compared_and_an_impossible_row_says_why(penstock: Penstock) -> None:
    answer = penstock("bench run --real --ranks 2 --tokens 192 --steps 1 --json")
    assert answer.code == 0
    real = answer.data["real"]
    (length,) = real["lengths"]
    reasons = [row["reason"] for row in length["rows"]]
    assert [reason is None for reason in reasons] == [True, True, False, True, True]
    assert "999 slices" in reasons[2]
    losses = [row["loss"] for row in length["rows"] if row["reason"] is None]
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-5)
    assert length["ratio"] > 0
    told = [json.loads(line) for line in answer.err.splitlines() if line.startswith("{")]
    assert [row["schedule"] for row in told] == [row["schedule"] for row in length["rows"]]


@pytest.mark.processes
@pytest.mark.usefixtures("small")
@pytest.mark.matrix
def test_the_host_part_and_the_profile_are_printed_as_tables(penstock: Penstock) -> None:
    answer = penstock("bench run --host --profile --tokens 16 --steps 1")
    assert answer.code == 0
    for word in ("Schedule1F1B", "0.25 or less", "16 -k 2", "aten::mm", "page faults"):
        assert word in answer.out


@pytest.mark.matrix
@pytest.mark.processes
@pytest.mark.usefixtures("small")
def test_lent_attention_is_measured_beside_its_prediction(penstock: Penstock) -> None:
    answer = penstock("bench run --loans --ranks 2 --tokens 32 --steps 1 --force")
    assert answer.code == 0
    told = [json.loads(line)["loans"] for line in answer.err.splitlines() if line.startswith("{")]
    assert [row["schedule"] for row in told] == read_bench_settings()["loans"]["schedules"]
    assert [row["equal_loss"] for row in told] == [True] * 3
    printed = [line.split() for line in answer.out.splitlines()[2:]]
    for row, cells in zip(told, printed, strict=True):
        assert cells[:2] == [row["schedule"], "32"]
        assert cells[7:9] == [f"{row[key]:.3f}" for key in ("imbalance", "predicted")]
        assert row["difference"] == pytest.approx(row["imbalance"] / row["predicted"] - 1)


@pytest.mark.matrix
@pytest.mark.processes
@pytest.mark.usefixtures("small")
def test_unequal_documents_are_run_packed_and_in_slices(penstock: Penstock) -> None:
    answer = penstock("bench run --unequal --ranks 2 --json")
    assert answer.code == 0
    packed, sliced = answer.data["unequal"]["rows"]
    names = (read_bench_settings()["unequal"][key] for key in ("packed", "sliced"))
    assert (packed["schedule"], sliced["schedule"]) == tuple(names)
    assert packed["tokens"] == sliced["tokens"]
    assert sliced["slices"] > packed["slices"]
    assert sliced["measured"] >= 0.99 * sliced["simulated"]
    gain = packed["measured"] / sliced["measured"]
    assert sliced["measured_gain"] == pytest.approx(gain)


@pytest.mark.usefixtures("small")
def test_slices_and_stages_of_lent_attention_must_be_equal(penstock: Penstock) -> None:
    answer = penstock("bench run --loans --tokens 30 --force")
    assert answer.code == 2
    assert "30 tokens cannot be cut into 4 equal slices" in answer.err
    assert "give --tokens a multiple of 4" in answer.err
    answer = penstock("bench run --loans --ranks 3 --force")
    assert answer.code == 2
    assert "4 layers cannot be spread evenly over 3 devices" in answer.err
    assert "give --ranks a number that divides 4" in answer.err


@pytest.mark.processes
@pytest.mark.matrix
@pytest.mark.usefixtures("small")
def test_plans_that_change_have_the_losses_of_one_that_stays(penstock: Penstock) -> None:
    answer = penstock("bench run --plans --ranks 2 --json")
    assert answer.code == 0
    plans = answer.data["plans"]
    quiet, late = plans["adaptive"]["phases"]
    assert (quiet["plan"], late["plan"]) == ("1f1b", "1f1b+group4")
    assert late["seconds"] < late["fixed_seconds"]
    assert plans["adaptive"]["equal_losses"] is plans["improving"]["equal_losses"] is True


@pytest.mark.processes
@pytest.mark.matrix
@pytest.mark.usefixtures("small")
def test_cells_are_compared_with_tensor_parallelism_of_pytorch(penstock: Penstock) -> None:
    answer = penstock("bench run --cells --ranks 4 --tokens 32 --steps 1")
    assert answer.code == 0
    theirs, *ours = [line.split() for line in answer.out.splitlines()[2:]]
    assert theirs[:4] == ["Schedule1F1B", "tensor=2", "32", "1"]
    assert [row[:4] for row in ours] == [
        ["1f1b", mesh, "32", "1"] for mesh in ("tensor=2", "sequence=2")
    ]
    assert all(float(row[5]) > 0 for row in ours)
    losses = [float(row[-1]) for row in ours]
    assert losses == pytest.approx([float(theirs[-1])] * len(ours), abs=2e-6)


def test_the_best_of_each_side_makes_the_ratio() -> None:
    def row(side: str, schedule: str, seconds: float, **more: Any) -> dict[str, Any]:
        figures = {"seconds": seconds, "prediction_error": -0.02, "slices": 1}
        return {"side": side, "schedule": schedule, "reason": None, **figures, **more}

    rows = [
        row("penstock", "1f1b", 4.0),
        row("penstock", "seq1f1b", 2.0, slices=8, prediction_error=0.04),
        row("torch", "Schedule1F1B", 5.0),
        row("torch", "ScheduleInterleaved1F1B", 3.0),
    ]
    found = step_ratios(rows, read_bench_settings()["real"])
    assert (found["best"], found["slices"], found["rival"]) == (
        "seq1f1b", 8, "ScheduleInterleaved1F1B",
    )  # fmt: skip
    assert (found["ratio"], found["same_ratio"], found["prediction_error"]) == (1.5, 1.25, 0.04)
    assert step_ratios(rows[:2], read_bench_settings()["real"])["ratio"] is None


@each("name", registry())
def test_every_schedule_has_a_size_to_be_emulated_at(name: str) -> None:
    settings = read_bench_settings()["emulate"]
    assert accepted_case(registry()[name], settings).p == settings["ranks"] == 8


def test_the_promises_stand_in_the_settings() -> None:
    settings = read_bench_settings()
    assert [rival["target"] for rival in settings["host"]["rivals"]] == [0.25, 0.5]
    assert settings["emulate"]["target"] == 0.02
    assert settings["emulate"]["shortest"] >= 0.02
    assert settings["real"]["target"] == 1.3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--emulate --ranks 64", "64 processes would share 1 cores"),
        ("--real --ranks 2 --tokens 64 --tokens 100000", "2 processes need about"),
        ("--profile --tokens 100000", "1 process needs about"),
        ("--loans --ranks 2 --tokens 32", "loans: 2 processes need as many cores, here are 1"),
    ],
)
@pytest.mark.usefixtures("small")
def test_what_the_machine_has_no_room_for_is_refused_before_a_process_starts(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    monkeypatch.setattr(bench, "this_machine", lambda: Machine(cores=1, free=500 * 10**6))
    answer = penstock(f"bench run {words}")
    assert answer.code == 2
    assert message in answer.err
    assert "with --force" in answer.err
