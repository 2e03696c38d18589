"""Profiles of models with experts and with windows: what is measured, and what estimates take."""

from collections.abc import Iterator
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Any

import pytest

from penstock.arch.attention_rule import seen_half_pairs
from penstock.arch.config import ModelConfig
from penstock.arch.mixture import ExpertMixture
from penstock.arch.presets import MODELS
from penstock.cluster.measured import ROUTING_KERNELS
from penstock.cluster.profile_file import machine_of
from penstock.estimate.layer_times import LayerTimes
from penstock.estimate.measured_times import ProfiledTimes
from penstock.estimate.products import Product
from penstock.profiling.case import ProfileCase
from penstock.profiling.check_cases import CheckCase
from penstock.profiling.modules import module_rows
from penstock.profiling.sizes import attention_sizes, product_sizes, whole_unit
from profiling.made_up import BYTES, CASE, FLOPS, profile

EXPERTS = replace(MODELS["tiny"], element_bytes=2, mixture=ExpertMixture(8, 2, balance=0.02))
NEAR = replace(MODELS["tiny"], element_bytes=2, window=32)
TOKENS = 256


def _times(model: ModelConfig, record: dict[str, Any]) -> ProfiledTimes:
    gpu = machine_of(record, "ours").cluster.gpu
    return ProfiledTimes(model, model, gpu, 1.0, "flash2", True)


def _grouped(record: dict[str, Any], times: float) -> dict[str, Any]:
    """With kernels of eight experts that are so many times as fast as others."""
    more = [row | {"groups": 8, "flops_per_second": times * FLOPS} for row in record["products"]]
    return record | {"products": [*record["products"], *more]}


def test_products_of_experts_have_the_rate_of_kernels_for_all_of_them() -> None:
    plain = _times(EXPERTS, profile()).parts(whole_unit(TOKENS, 0))
    grouped = _times(EXPERTS, _grouped(profile(), 2.0)).parts(whole_unit(TOKENS, 0))
    for (name, passed), seconds in plain.items():
        faster = name in ("product 3", "product 4")
        assert grouped[name, passed] == pytest.approx(seconds / (2 if faster else 1))


def test_rows_of_experts_move_as_fast_as_was_measured_or_as_sums() -> None:
    unit = whole_unit(TOKENS, 0)
    by_sums = _times(EXPERTS, profile()).parts(unit)
    rows = [
        {"name": name, "pass": passed, "bytes": 4096, "bytes_per_second": 4 * BYTES}
        for name, passed in ROUTING_KERNELS
    ]
    record = profile()
    own = _times(EXPERTS, record | {"kernels": [*record["kernels"], *rows]}).parts(unit)
    for key in ROUTING_KERNELS:
        assert own[key] == pytest.approx(by_sums[key] / 4)
    assert "rows" not in {name for name, _ in _times(NEAR, profile()).parts(unit)}


def test_attention_in_a_window_has_the_rate_that_it_was_measured_at() -> None:
    record = profile()
    windowed = [row | {"window": 32, "flops_per_second": FLOPS / 5} for row in record["attention"]]
    record["attention"] = [*record["attention"], *windowed]
    unit = whole_unit(TOKENS, 0)
    near = unit._replace(pairs=seen_half_pairs(TOKENS, 32) / 2)
    seconds = near.pairs * NEAR.pair_flops / FLOPS
    assert _times(NEAR, profile()).attention_seconds(near) == pytest.approx((seconds, 2 * seconds))
    slower = _times(NEAR, record).attention_seconds(near)
    assert slower == pytest.approx((5 * seconds, 10 * seconds))
    short = whole_unit(32, 0)
    wide = replace(NEAR, window=None)
    assert _times(NEAR, record).attention_seconds(short) == pytest.approx(
        _times(wide, record).attention_seconds(short)
    )


def test_windows_are_measured_where_slices_reach_beyond_them() -> None:
    case = ProfileCase("ours", NEAR, TOKENS, 2)
    found = [each for each in attention_sizes(case) if each.window]
    assert {each.window for each in found} == {32}
    assert all(each.past + each.tokens > 32 for each in found)
    for each in found:
        queries = range(each.past, each.past + each.tokens)
        pairs = sum(min(at + 1, 32) - 0.5 * (at < 32) for at in queries)
        assert each.pairs == pytest.approx(pairs)
    assert not any(each.window for each in attention_sizes(replace(case, sizes=EXPERTS)))


def _products(model: ModelConfig) -> Iterator[tuple[str, Product]]:
    case = ProfileCase("ours", model, TOKENS, 2, "bf16")
    gpu = machine_of(profile(), "ours").cluster.gpu
    yield from product_sizes(case, LayerTimes(model, model, gpu, 1.0, "flash2", True))


def test_one_kernel_for_all_experts_is_measured_as_one() -> None:
    found = {(name, each.together) for name, each in _products(EXPERTS) if each.groups > 1}
    assert found == {(name, 8) for name in ("forward", "inputs", "weights")}
    assert {each.groups for _, each in _products(NEAR)} == {1}


def test_steps_are_compared_with_estimates_of_the_same_model(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(dumps(profile(case=CASE.record() | {"fused": False})))
    held = []
    for sizes in (EXPERTS, replace(EXPERTS, mixture=None)):
        case = ProfileCase("ours", sizes, TOKENS, 1, "fp32")
        held.append(CheckCase(case).estimated(str(path)).memory[0].gradients // 4)
    assert held == [EXPERTS.parameters, replace(EXPERTS, mixture=None).parameters]
    assert held[0] > 2 * held[1]


def test_modules_of_experts_have_their_own_names() -> None:
    from penstock.core.ops import Op
    from penstock.profiling.in_step import StepOps, factors_of

    case = replace(CASE, sizes=EXPERTS)
    kinds = ((kind, stage, slice) for kind in "FIW" for stage in range(3) for slice in range(4))
    ops = {Op(kind, stage, 0, slice): 1e-2 for kind, stage, slice in kinds}
    ops |= {Op("V", 0, 0, 0): 1e-3, Op("U", 0, 0, 0): 1e-3}
    step = StepOps(case, _times(case.model, profile()), ops, sum(ops.values()), 0.0)
    names = [row["name"] for row in module_rows(step, factors_of([step], False))]
    assert names[:5] == [
        "queries, keys and values",
        "attention output",
        "router",
        "experts' gate and up",
        "experts' down",
    ]
    assert "rows of experts" in names


@pytest.mark.torch
def test_kernels_of_experts_are_measured() -> None:
    import torch

    from penstock.profiling.measure.kernels import KernelBench

    bench = KernelBench(ProfileCase("ours", EXPERTS, 32, 1, "bf16"), torch.device("cpu"))
    sizes = {(name, each.together): each for name, each in _products(EXPERTS)}
    for name in ("forward", "inputs", "weights"):
        row = bench.product(name, sizes[name, 8])
        assert (row["groups"], row["pass"]) == (8, name)
        assert row["flops_per_second"] * row["seconds"] == pytest.approx(sizes[name, 8].flops)
    assert {(row["name"], row["pass"]) for row in bench.moving()} >= {*ROUTING_KERNELS}
