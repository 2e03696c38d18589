"""Estimates of a schedule that cuts layers at their attention."""

import json
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimate.layouts import priced_step
from loops import each
from penstock.arch.layers.norm import AFTER
from penstock.arch.presets import MODELS
from penstock.cli.main import main
from penstock.cluster.profile_file import read_machine
from penstock.cluster.read import read_cluster
from penstock.cost.cut_workload import CutWorkload
from penstock.errors import ShapeError
from penstock.estimate.cut_times import CutLayer
from penstock.estimate.layer_seconds import UnitTokens
from penstock.estimate.layer_times import LayerTimes
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.layout_cost import LayoutCost
from penstock.estimate.measured_times import profiled_times
from penstock.estimate.price import Estimate, estimate
from penstock.estimate.request import layout_from
from penstock.estimate.step_schedule import StepSchedule
from penstock.plan.memory import footprints
from profiling.made_up import profile

LENGTH = 8192
LLAMA = MODELS["llama3-8b"]
UNIT = UnitTokens(LENGTH, LENGTH, LENGTH, LENGTH**2 / 2, LENGTH**2)


def row(**changes: Any) -> dict[str, Any]:
    """Eight layers on each of four devices, two microbatches for each of them."""
    found = {
        "model": "llama3-8b",
        "cluster": "h200:4",
        "tokens": LENGTH,
        "batch_tokens": 8 * LENGTH,
        "mesh": "pipeline=4",
        "schedule": "helixpipe",
    }
    return found | changes


def priced(**changes: Any) -> tuple[TrainingLayout, StepSchedule, LayoutCost]:
    return priced_step(layout_from(row(**changes)))


def estimated(**changes: Any) -> Estimate:
    return estimate(layout_from(row(**changes)))


def _times(kind: str, folder: Path, name: str = "llama3-8b") -> LayerTimes:
    gpu = read_cluster("h200:1").gpu
    model = replace(MODELS[name], element_bytes=2)
    times = LayerTimes(model, model, gpu, gpu.peak_of("bf16"), "flash2", fused_norm=True)
    if kind == "a data sheet":
        return times
    file = folder / "p.json"
    fixed = {"forward": 1e-4, "inputs": 2e-4, "weights": 1e-5, "head": 0.0}
    in_step = profile()["in_step"] | {"forward": 1.25, "attention backward": 1.5}
    file.write_text(dumps(profile() | {"in_step": in_step, "fixed_seconds": fixed}))
    return profiled_times(replace(times, gpu=read_machine(file).cluster.gpu), sliced=False)


@each("kind", ["a data sheet", "a profile"])
@each("send", ["heads", "weights"])
@each("name", ["llama3-8b", "gemma3-4b", "olmo2-7b"])
def test_the_parts_of_a_layer_take_as_long_as_the_layer(
    kind: str, send: str, name: str, tmp_path: Path
) -> None:
    times = _times(kind, tmp_path, name)
    parts = [*zip(*CutLayer.of(times, UNIT, send), times.attended_seconds(UNIT))]
    assert [sum(passed) for passed in parts] == pytest.approx([*times.seconds(UNIT)], rel=1e-9)
    assert all(min(behind) > 0 for _, *behind in parts[:2])
    nothing = times.part.norms == AFTER and send == "weights"  # all is made where attention is
    assert all((front == 0) == nothing for front, *_ in parts[:2])


@each("send", ["heads", "weights"])
@each("mesh", ["pipeline=4", "pipeline=4,tensor=2"])
def test_messages_are_those_that_simulate_counts(send: str, mesh: str) -> None:
    ranks = 4 * (1 + ("tensor" in mesh))
    for rows in (1, 2):
        batch = {"rows": rows, "batch_tokens": 8 * rows * LENGTH, "cluster": f"h200:{ranks}"}
        _, step, cost = priced(mesh=mesh, options={"send": send}, **batch)
        assert isinstance(cost.workload, CutWorkload)
        wanted = np.array(cost.workload.boundaries(rows * LENGTH))
        assert len({*wanted.tolist()}) == 2
        parts = np.array(step.schedule.shape.boundary_bytes)
        _, _, plain = priced(mesh=mesh, schedule="1f1b", **batch)
        seconds = parts * float(cost.link(0, 1).per_byte) / float(plain.link(0, 1).per_byte)
        whole = rows * plain.workload.boundary_bytes(LENGTH)
        assert seconds == pytest.approx(wanted / whole, rel=1e-3)


@each("send", ["heads", "weights"])
@each("recompute", ["none", "stages", "without-attention"])
@each("axis", ["tensor", "sequence", "none"])
def test_memory_is_what_a_run_predicts(send: str, recompute: str, axis: str) -> None:
    """Which is compared with what runs hold (tests/run/observe/test_cut_memory.py)."""
    mesh = {"pipeline": 4} | ({axis: 2} if axis != "none" else {})
    cluster = f"h200:{4 * mesh.get(axis, 1)}"
    found = estimated(options={"send": send}, recompute=recompute, mesh=mesh, cluster=cluster)
    _, step, cost = priced(options={"send": send}, recompute=recompute, mesh=mesh, cluster=cluster)
    held = footprints(step.schedule, cost.workload)
    for memory, wanted in zip(found.memory, held):
        state = memory.weights + memory.gradients + memory.optimizer
        assert state == wanted.held
        added = memory.activations + memory.keys_values + memory.logits + memory.temporaries
        assert added < wanted.step <= added + memory.communication_buffers


def test_a_bubble_is_near_that_of_simulate(capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels take other times than peaks say, and a step has an end."""
    sizes = ["-p", "4", "-m", "8", "-v", "8", "--model", "llama3-8b", "--tokens", str(LENGTH)]
    assert main(["simulate", "helixpipe", *sizes, "--json"]) == 0
    simulated = json.loads(capsys.readouterr().out)
    found = estimated()
    assert found.bubble == pytest.approx(simulated["bubble_makespan"], abs=0.05)
    assert main(["simulate", "1f1b", *sizes[:4], *sizes[6:], "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    ratio = found.seconds / estimated(schedule="1f1b").seconds
    assert ratio == pytest.approx(simulated["makespan"] / whole["makespan"], rel=0.03)


@each("send", ["heads", "weights"])
@each("kernel", ["flash2", "unfused"])
def test_all_stages_together_compute_what_whole_layers_do(send: str, kernel: str) -> None:
    """And put together in one tensor what goes to another device: once for each message."""
    both = [
        priced(schedule=name, attention=kernel, options=options)[1:]
        for name, options in (("helixpipe", {"send": send}), ("1f1b", {}))
    ]
    (cut, own), (whole, other) = both
    ours, theirs = own.computing(cut.schedule).sum(), other.computing(whole.schedule).sum()
    sent = 2 * 8 * sum(own.workload.boundaries(LENGTH))
    joined = 2 * sent / own.times.memory_rate
    assert ours - theirs == pytest.approx(joined, rel=0.05)


def test_what_sequences_keep_where_attention_is_not_fused_is_on_its_stages() -> None:
    _, step, cost = priced(attention="unfused")
    fused = priced()[2]
    more = cost.amounts(step.schedule, "act").ticks - fused.amounts(step.schedule, "act").ticks
    attention = np.isin(step.schedule.table.stage, [*step.schedule.shape.weightless])
    forward = step.schedule.table.of_kinds("F")
    assert {*more[forward & attention].tolist()} == {LENGTH**2 * LLAMA.heads * 2}
    assert not more[forward & ~attention].any()


def test_attention_that_is_not_computed_again_counts_for_no_utilisation() -> None:
    """Both ways where it is given weights: it keeps its output."""
    token = {
        (send, again): (found.hardware_utilisation - found.flops_utilisation) * found.seconds
        for send in ("heads", "weights")
        for again in ("stages", "without-attention")
        for found in [estimated(options={"send": send}, recompute=again)]
    }
    layers = 8 * LENGTH * LLAMA.total("layer_flops") / (4 * 989e12)
    pairs = 8 * LENGTH * LLAMA.flops_per_pair * LENGTH / (4 * 989e12)
    assert token.pop(("heads", "stages")) == pytest.approx(layers + pairs, rel=1e-2)
    assert [*token.values()] == pytest.approx([layers] * 3, rel=1e-2)


def test_layers_of_a_device_follow_from_the_model() -> None:
    assert estimated().seconds == estimated(chunks=8).seconds
    with pytest.raises(ShapeError, match="does not fit a model of 32 layers"):
        estimated(chunks=4)


def test_a_device_that_the_others_wait_for_cannot_give_away_layers() -> None:
    from penstock.estimate.reasons import reasons

    (told,) = (each for each in reasons(estimated()) if "which wait for it" in each)
    assert "device 0" in told
    assert "balanced" not in told
    assert layout_from(row(layers="balanced")).layers == ()


def test_what_a_cut_stage_sends_is_not_taken_for_what_a_stage_of_whole_layers_sends() -> None:
    """Both are priced with the same links: stage 8 is no stage of eight layers."""
    mesh = {"pipeline": 4, "tensor": 2}
    alone = estimated(mesh=mesh, cluster="h200:8").seconds
    estimated(mesh=mesh, cluster="h200:8", schedule="1f1b")
    assert estimated(mesh=mesh, cluster="h200:8", fused_norm=True).seconds == alone


WRONG: dict[str, dict[str, Any]] = {
    "but recompute is all": {"recompute": "all"},
    "but norms are not fused": {"fused_norm": False},
    "which have adapters of LoRA": {"lora": 8, "options": {"send": "weights"}},
    "but embedding and head are on all devices": {"vocabulary": True},
    "has no stages of attention alone": {"schedule": "1f1b", "recompute": "without-attention"},
    "does not make up|stages": {"layers": [1] * 65},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_not_counted_is_refused_by_name(message: str) -> None:
    with pytest.raises(ShapeError, match=message) as refused:
        estimated(**WRONG[message])
    assert refused.value.hint
