"""Rows of steps on a GPU, tried on the host with a small model."""

from dataclasses import replace
from json import dumps

import pytest
import torch

from penstock.arch.config import ModelConfig
from penstock.bench.gpu_tables import gpu_tables
from penstock.bench.measure import gpu, gpu_rows, op_profile
from penstock.bench.measure.compiled_step import plain_making
from penstock.bench.measure.gpu import engine_of, measure_ours, memory_record
from penstock.bench.measure.gpu_case import GpuCase
from penstock.bench.measure.gpu_rows import breakdown_rows, compared_rows
from penstock.bench.measure.op_profile import predicted_seconds, profile_of
from penstock.bench.measure.step_clock import StepTimes, unless_memory_ends
from penstock.cost.profile import Profile
from penstock.run.execute.executor import Executor

pytestmark = pytest.mark.torch

HOST = torch.device("cpu")
MODEL = ModelConfig(2, 32, 48, 4, 2, 8, 40)
WHOLE = GpuCase("small", MODEL, 128, "1f1b", dtype="float32")
SLICED = WHOLE._replace(schedule="seq1f1b", slices=2)
AGAIN = SLICED._replace(transforms=("recompute_all",))
MAKING = plain_making(HOST, torch.float32)


@pytest.mark.long
def test_cases_of_one_length_share_a_baseline() -> None:
    rows = list(compared_rows([WHOLE, SLICED, AGAIN], MAKING, 2, 1))
    assert [(row["slices"], row["transforms"]) for row in rows] == [
        (1, ()),
        (2, ()),
        (2, ("recompute_all",)),
    ]
    assert rows[0]["baseline_seconds"] == rows[1]["baseline_seconds"]
    assert rows[2]["baseline_seconds"] != rows[1]["baseline_seconds"]
    for row in rows:
        assert row["ratio"] == row["seconds"] / row["baseline_seconds"]
        assert (row["reason"], row["baseline_reason"]) == (None, None)
        dumps(row)
    steps = [{**row, "wanted": 0.98} for row in rows]
    (head, cells), = gpu_tables({"steps": steps})  # fmt: skip
    assert {len(row) for row in cells} == {len(head)}


def test_a_side_that_does_not_fit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    with monkeypatch.context() as patched:
        patched.setattr(gpu_rows, "baseline_row", full)
        row = next(compared_rows([WHOLE], MAKING, 1, 1))
        assert (row["baseline_reason"], row["reason"], row["ratio"]) == (
            "out of memory",
            None,
            None,
        )
    for name in ("our_row", "breakdown_row"):
        monkeypatch.setattr(gpu_rows, name, full)
    ours = next(compared_rows([WHOLE], MAKING, 1, 1))
    assert (ours["baseline_reason"], ours["reason"], ours["ratio"]) == (None, "out of memory", None)
    where = next(breakdown_rows([WHOLE], HOST, 1))
    for part, one in {"steps": {**row, "wanted": None}, "breakdown": where}.items():
        assert "out of memory" in next(gpu_tables({part: [one]}))[1][0]


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        unless_memory_ends(fail, HOST)
    assert unless_memory_ends(lambda: 3, HOST) == 3


@pytest.mark.parametrize("case", [WHOLE, SLICED, AGAIN])
def test_a_step_is_predicted_from_all_its_ops(case: GpuCase) -> None:
    """With 1 s for every op, the step has as many seconds as the lane has ops."""
    with engine_of(case, HOST) as engine:
        engine.step(case.batch(), 1e-4)
        profile = profile_of(engine.executor)
        ops = [call.op for call in engine.executor.spans.calls]
        flat = Profile(dict.fromkeys(profile.seconds, 1.0), profile.sizes)
        assert predicted_seconds(engine.executor, flat) == len(ops)
        assert {kind for kind, _, _ in profile.seconds} == {op.kind for op in ops} >= {"V", "U"}


def test_a_prediction_is_of_ops_that_ran_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The profile is of the step whose ops ran alone, and steps that count run without a stop."""
    waits: list[torch.device] = []
    profiled: list[int] = []

    def second_each(executor: Executor) -> Profile:
        profiled.append(len(waits))
        found = profile_of(executor)
        return Profile(dict.fromkeys(found.seconds, 1.0), found.sizes)

    monkeypatch.setattr(op_profile, "synchronise", waits.append)
    monkeypatch.setattr(gpu, "profile_of", second_each)
    found = measure_ours(SLICED, HOST, 2, 1)
    assert len(found.times.seconds) == 2
    assert profiled == [len(waits)] == [2 * found.predicted]
    assert set(waits) == {HOST}


def test_memory_is_compared_where_it_was_measured() -> None:
    predicted = memory_record(WHOLE, [StepTimes([], 0, 0)])
    assert predicted["memory_error"] is None
    (size,) = predicted["predicted_bytes"]
    assert memory_record(WHOLE, [StepTimes([], 2 * size, 0)])["memory_error"] == 0.5


def test_a_case_in_another_type_has_other_sizes() -> None:
    short = WHOLE._replace(dtype="bfloat16")
    assert (short.config(), WHOLE.config()) == (MODEL, replace(MODEL, element_bytes=4))


def test_weights_are_the_same_for_a_tied_head() -> None:
    case = WHOLE._replace(sizes=replace(MODEL, tied=True))
    with engine_of(case, HOST) as engine:
        (weights,) = engine.weights.values()
        named = weights.named(weights.value)
        assert torch.equal(named["lm_head.weight"], named["model.embed_tokens.weight"])
        assert float(named["lm_head.weight"].std()) == pytest.approx(0.02, rel=0.1)
