"""The benchmark on small sizes: what it measures is really done, and every field is filled."""

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.bench.clock import best_of, peak_bytes
from penstock.bench.core import (
    generate_lanes,
    measure_build,
    measure_memory,
    read_core_settings,
    run_core,
)
from penstock.bench.torch_schedules import TorchSchedule, find_rival
from penstock.schedules import registry


def small() -> dict[str, Any]:
    """The real settings, with fewer devices and microbatches."""
    settings: dict[str, Any] = {**read_core_settings(), "repeats": 2}
    settings["large"] = {**settings["large"], "devices": 4, "microbatches": 8}
    settings["build"] = {**settings["build"], "devices": 4, "microbatches": 8}
    settings["memory"] = {**settings["memory"], "devices": 4, "microbatches": [16, 32, 64]}
    return settings


def without_torch(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**settings, "rival": {**settings["rival"], "module": "no_such_package.pipelining"}}


def test_the_stated_size_is_the_promised_one() -> None:
    large = read_core_settings()["large"]
    assert large["schedule"] in registry()
    assert {key: large[key] for key in ("devices", "microbatches", "slices")} == {
        "devices": 64,
        "microbatches": 1024,
        "slices": 8,
    }
    tiny = generate_lanes({**large, "devices": 2, "microbatches": 2})
    assert len(tiny.table) == 3 * 2 * 2 * 8  # F, I and W of every unit: 1.57 M ops at full size
    assert read_core_settings()["repeats"] == 5


@pytest.mark.long
def test_a_run_fills_every_field_and_says_what_it_does() -> None:
    settings, said = small(), list[str]()
    settings["build"] = without_torch(settings["build"])
    results = run_core(settings, said.append)
    for part in ("simulate", "simulate_general", "check"):
        assert results[part]["ops"] == 3 * 4 * 8 * 8
        assert results[part]["ops_per_second"] == results[part]["ops"] / results[part]["seconds"]
        assert results[part]["target"] == settings[part]["target"]
    assert [line.split()[1] for line in said] == [
        "generating", "simulate", "simulate_general", "check", "build", "memory",
    ]  # fmt: skip


def test_without_torch_the_comparison_is_null_and_says_why() -> None:
    result = measure_build(without_torch(small()["build"]), 1)
    assert (result["torch"], result["ratio"]) == (None, None)
    assert result["reason"] == "no_such_package is not installed"
    assert result["seconds"] > 0


@pytest.mark.torch
def test_torch_constructs_the_same_order_and_the_ratio_is_of_one_run() -> None:
    pytest.importorskip("torch")
    result = measure_build(small()["build"], 1)
    assert result["torch"]["same_order"] is True
    assert result["ratio"] == result["torch"]["seconds"] / result["seconds"]


@pytest.mark.torch
def test_another_order_is_noticed() -> None:
    pytest.importorskip("torch")
    settings = small()["build"]
    rival = find_rival(settings["rival"], generate_lanes(settings))
    assert isinstance(rival, TorchSchedule)
    assert not rival.same_order(generate_lanes({**settings, "microbatches": 12}))


@pytest.mark.matrix
@pytest.mark.long
def test_memory_grows_with_the_ops() -> None:
    result = measure_memory(small()["memory"], 1)
    assert [row["ops"] for row in result["sizes"]] == [3 * 4 * 4 * m for m in (16, 32, 64)]
    assert 1 / result["target"] < result["growth"] < result["target"]


def test_only_the_best_run_counts_and_preparation_does_not() -> None:
    calls: list[str] = []
    seconds = best_of(3, lambda: calls.append("work"), prepare=lambda: calls.append("prepare"))
    assert calls == ["prepare", "work"] * 3
    assert 0 < seconds < 1


def test_the_peak_is_seen_even_when_the_memory_is_given_back() -> None:
    assert peak_bytes(lambda: len(bytearray(10_000_000))) >= 10_000_000
