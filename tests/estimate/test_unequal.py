"""Estimates of batches of unequal sequences that are cut into slices of one size."""

import json
from itertools import pairwise
from typing import Any

import pytest

from estimate.layouts import priced_step
from loops import each
from penstock.cli.main import main
from penstock.errors import ShapeError
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.layout_cost import LayoutCost
from penstock.estimate.policies.arranged import ArrangedStep
from penstock.estimate.policies.step_price import PolicySetting
from penstock.estimate.price import Estimate, estimate
from penstock.estimate.request import layout_from
from penstock.estimate.step_schedule import StepSchedule
from penstock.estimate.utilisation import token_flops
from penstock.plan.memory import footprints
from penstock.schedules import build

SLICE = 8192
RAGGED = ("chunkflow", "chunkflow-paced")


def row(groups: str = "4,1,2,1/2", total: str = "15/2", **changes: Any) -> dict[str, Any]:
    """Four microbatches on four devices; the longest sequence has four slices."""
    numerator, _, denominator = total.partition("/")
    found = {
        "model": "llama3.2-1b",
        "cluster": "h100:4",
        "tokens": 4 * SLICE,
        "batch_tokens": int(numerator) * SLICE // int(denominator or 1),
        "mesh": "pipeline=4",
        "schedule": "chunkflow",
        "options": {"groups": groups},
    }
    return found | changes


def priced(**changes: Any) -> tuple[TrainingLayout, StepSchedule, LayoutCost]:
    return priced_step(layout_from(row(**changes)))


def estimated(**changes: Any) -> Estimate:
    return estimate(layout_from(row(**changes)))


def test_the_longest_sequence_has_all_tokens_and_slices_one_size() -> None:
    layout, step, cost = priced()
    wanted = ((SLICE,) * 4, (SLICE,), (SLICE,) * 2, (SLICE // 2,))
    assert layout.lengths == step.microbatches == cost.workload.lengths == wanted
    assert layout.microbatches == 4
    assert sum(map(sum, wanted)) == layout.batch_tokens
    assert layout_from(row("5/2,1", "7", tokens=5 * SLICE)).lengths == (
        (2 * SLICE, 2 * SLICE, SLICE),
        (2 * SLICE,),
    )


@each("name", RAGGED)
@each("mesh", ["pipeline=4", "pipeline=2,tensor=2", "pipeline=2,sequence=2"])
def test_memory_is_what_a_run_predicts(name: str, mesh: str) -> None:
    found = estimated(schedule=name, mesh=mesh)
    _, step, cost = priced(schedule=name, mesh=mesh)
    for memory, wanted in zip(found.memory, footprints(step.schedule, cost.workload), strict=True):
        state = memory.weights + memory.gradients + memory.optimizer
        assert state == wanted.held
        kept = memory.activations + memory.keys_values + memory.logits + memory.temporaries
        most = max(wanted.step, wanted.end)
        assert kept < most <= kept + memory.communication_buffers


@each("name", RAGGED)
def test_a_step_takes_what_a_policy_that_makes_the_same_slices_takes(name: str) -> None:
    layout, step, _ = priced(schedule=name)
    schedule = build(name, devices=4, microbatches=4, options={"groups": "4,1,2,1/2"})
    slices = []
    for lengths in step.microbatches:
        ends = [sum(lengths[:at]) for at in range(len(lengths) + 1)]
        slices.append(tuple((pair,) for pair in pairwise(ends)))
    setting = PolicySetting(layout.model, layout.cluster, layout.mesh, 4, layout.tokens)
    seconds = setting.seconds(ArrangedStep(schedule, tuple(slices)))
    assert estimate(layout).seconds == pytest.approx(seconds, rel=1e-9)


@each("name", RAGGED)
def test_slices_without_groups_are_those_of_each_sequence(name: str) -> None:
    batch = {"schedule": name, "options": {"warmup": 4}, "batch_tokens": 8 * 4 * SLICE}
    alike = estimated(slices=4, **batch)
    asked = batch | {"options": {"warmup": 4, "groups": ",".join("4" * 8)}}
    assert alike.seconds == estimated(**asked).seconds
    assert alike.layout.microbatches == 8
    whole = estimated(**batch | {"options": {}})
    plain = estimated(schedule="1f1b", options={}, batch_tokens=batch["batch_tokens"])
    assert whole.seconds == pytest.approx(plain.seconds, rel=1e-6)


def test_a_bubble_is_near_that_of_simulate(capsys: pytest.CaptureFixture[str]) -> None:
    """Slices of short documents have less attention, which simulate counts as well."""
    sizes = ["-p", "4", "-m", "4", "--model", "llama3.2-1b", "--tokens", str(4 * SLICE), "--json"]
    assert main(["simulate", "chunkflow", *sizes, "-o", "groups=4,4,4,4", "-o", "warmup=4"]) == 0
    simulated = json.loads(capsys.readouterr().out)["bubble_makespan"]
    options = {"groups": "4,4,4,4", "warmup": 4}
    found = estimated(batch_tokens=16 * SLICE, options=options)
    assert found.bubble == pytest.approx(simulated, abs=0.06)


def test_utilisation_counts_the_pairs_of_each_sequence() -> None:
    found = estimated()
    lengths = [*map(sum, found.layout.lengths)]
    flops = sum(each * token_flops(found.layout.model, each) for each in lengths)
    peak = 4 * found.layout.cluster.gpu.peak_of("bf16")
    assert found.flops_utilisation == pytest.approx(flops / found.seconds / peak)
    assert found.tokens_per_second == sum(lengths) / found.seconds


def test_a_line_says_that_sequences_are_of_several_lengths(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["--model", "llama3.2-1b", "--cluster", "h100:4", "--tokens", "8192"]
    asked += ["--mesh", "pipeline=4", "--schedule", "chunkflow"]
    main(["estimate", *asked, "--batch-tokens", "12288", "-o", "groups=4,1,1"])
    assert "3 microbatches of 1 x up to 8,192 tokens" in capsys.readouterr().out
    main(["estimate", *asked, "--batch-tokens", "32768", "-k", "2"])
    assert "4 microbatches of 1 x 8,192 tokens" in capsys.readouterr().out


WRONG: dict[str, dict[str, Any]] = {
    "have 61,440 together": {"batch_tokens": 4 * 4 * SLICE},
    "in 3 slices do not leave each a whole number": {"groups": "3,1", "total": "5"},
    "groups is 'a,b'": {"groups": "a,b"},
    "groups is '1/0'": {"groups": "1/0"},
    "slices is 2, but groups say": {"slices": 2},
    "2 ranks share slices of 1 tokens": {
        "groups": "1,1",
        "options": {"groups": "32768,1"},
        "batch_tokens": 32769,
        "mesh": "pipeline=2,sequence=2",
    },
    "the model leaves out tokens": {"model": "subllm-1.3b"},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_does_not_go_together_is_refused_with_a_hint(message: str) -> None:
    with pytest.raises(ShapeError, match=message.replace("(", "\\(")) as refused:
        estimated(**WRONG[message])
    assert refused.value.hint
