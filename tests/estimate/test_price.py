"""What a layout costs follows from its parts, and from what it is compared with."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from estimate.layouts import BATCH, LLAMA_13B, LLAMA_65B, priced, row
from penstock.errors import ShapeError
from penstock.estimate.layout_cost import LayoutCost
from penstock.estimate.memory_classes import CONTEXT, DRIVER
from penstock.estimate.price import Estimate, TimedStep, estimate, estimate_step, layout_cost
from penstock.estimate.request import layout_from
from penstock.estimate.step_schedule import step_schedule
from penstock.sim import simulate

NARROW = {"layers": 32, "hidden": 4096, "ffn": 16384, "heads": 32, "vocabulary": 64}
"""A model whose ends weigh next to nothing, so that stages are equal."""
MEASURED_ON_H200 = {
    ("llama3.2-1b", 32768): 1.002 * 0.999,
    ("llama3-8b-4l", 32768): 0.970 * 0.565,
    ("llama3-8b-4l", 131072): 0.990 * 4.968,
}
"""Seconds of a step with cuDNN's attention: ratios and seconds in docs/benchmarks.md."""
LLAMA3_4L = {"layers": 4, "hidden": 4096, "ffn": 14336, "heads": 32, "kv_heads": 8}
MODELS = {"llama3.2-1b": "llama3.2-1b", "llama3-8b-4l": LLAMA3_4L | {"vocabulary": 32000}}


@pytest.mark.parametrize(("model", "tokens"), MEASURED_ON_H200)
def test_steps_on_one_gpu_take_what_was_measured(model: str, tokens: int) -> None:
    found = priced(
        model=MODELS[model],
        cluster="h200:1",
        tokens=tokens,
        batch_tokens=tokens,
        attention="cudnn",
        shard="none",
    )
    assert found.seconds == pytest.approx(MEASURED_ON_H200[model, tokens], rel=0.03)


@pytest.mark.parametrize(("devices", "microbatches"), [(2, 8), (4, 8), (8, 16)])
def test_the_bubble_is_the_closed_form(devices: int, microbatches: int) -> None:
    """(p - 1)/(m + p - 1) of the step, where stages are equal and transfers short."""
    found = priced(
        model=NARROW,
        cluster=f"h100:{devices}",
        tokens=8192,
        batch_tokens=8192 * microbatches,
        mesh=f"pipeline={devices}",
        shard="none",
    )
    ideal = Fraction(devices - 1, microbatches + devices - 1)
    assert found.bubble == pytest.approx(float(ideal), abs=0.01)


def test_better_kernels_are_faster() -> None:
    kernels = ("flash2", "flash1", "fused-softmax", "unfused")
    seconds = [priced(attention=kernel, mesh="tensor=2").seconds for kernel in kernels]
    assert seconds == sorted(seconds)
    assert priced(fused_norm=False).seconds > priced(fused_norm=True).seconds


def test_computing_layers_again_takes_time_and_frees_memory() -> None:
    choices = ("none", "layers=5", "layers=10", "all")
    found = [priced(recompute=each, mesh="pipeline=4") for each in choices]
    assert [each.seconds for each in found] == sorted(each.seconds for each in found)
    held = [each.memory[0].activations + each.memory[0].keys_values for each in found]
    assert held[0] > held[1] > held[2] == held[3]


def test_all_layers_again_keep_their_input_alone() -> None:
    """2 s b h bytes of a layer and a microbatch in flight, and the norm behind the last."""
    found = priced(recompute="all", mesh="pipeline=4", rows=2)
    flight, input_bytes = 4, 2 * 2048 * 2 * 5120
    assert found.memory[0].activations == flight * 10 * input_bytes
    assert found.memory[0].keys_values == 0


def test_selective_recompute_drops_what_unfused_attention_keeps() -> None:
    kept = priced(attention="unfused").memory[0].activations
    again = priced(attention="unfused", recompute="selective").memory[0].activations
    assert kept - again == 40 * 40 * 2048**2 * 2
    assert priced(recompute="selective").memory == priced().memory


def test_attention_that_is_computed_again_has_the_pairs_of_one_layer() -> None:
    """Probabilities and their gradients, of 40 heads: two bytes of each pair."""
    long = {
        "tokens": 16384,
        "cluster": "a100-80:4",
        "batch_tokens": 4 * 16384,
        "mesh": "pipeline=4",
    }
    fused, plain = (
        priced(**long, attention=each, recompute="selective").memory[1].temporaries
        for each in ("flash2", "unfused")
    )
    assert 0 < plain - 2 * 40 * 16384**2 * 2 <= fused


def test_layers_that_are_not_computed_again_keep_what_unfused_attention_does() -> None:
    kept, some = (
        priced(attention="unfused", recompute=each).memory[0].activations
        for each in ("none", "layers=10")
    )
    fused, again = (priced(recompute=each).memory[0].activations for each in ("none", "layers=10"))
    assert (kept - some) - (fused - again) == 10 * 40 * 2048**2 * 2


@pytest.mark.parametrize("shard", ["none", "optimizer"])
def test_state_is_what_mixed_precision_needs(shard: str) -> None:
    """2 + 4 bytes of a parameter, and 12 that copies may share (gradients are in 32 bits)."""
    found = priced(shard=shard).memory[0]
    parameters = layout_from(row()).model.parameters
    assert found.weights == 2 * parameters
    assert found.gradients == 4 * parameters
    owned = parameters if shard == "none" else -(-parameters // 64)
    assert found.optimizer == 12 * owned


def test_everything_shared_leaves_little() -> None:
    found = priced(shard="full", cluster="a100-80:64", mesh="pipeline=4")
    whole = priced(shard="none", cluster="a100-80:64", mesh="pipeline=4")
    assert max(each.optimizer for each in found.memory) * 15 < whole.memory[0].optimizer


def test_a_gpu_with_more_memory_fits_whatever_a_smaller_one_does() -> None:
    small = priced(cluster="a100-40:64", mesh="tensor=4,pipeline=4")
    large = priced(cluster="a100-80:64", mesh="tensor=4,pipeline=4")
    assert small.memory == large.memory
    assert (small.fits, large.fits) == (False, True) or small.fits == large.fits
    room = [replace(small.layout.cluster.gpu, memory=gib << 30) for gib in range(4, 200, 4)]
    fits = [_on(small, gpu).fits for gpu in room]
    assert fits == sorted(fits)
    assert {*fits} == {False, True}


def _on(found: Estimate, gpu: Any) -> Estimate:
    cluster = replace(found.layout.cluster, gpu=gpu)
    return replace(found, layout=replace(found.layout, cluster=cluster))


def test_memory_of_a_gpu_is_the_sum_of_its_classes() -> None:
    memory = priced(mesh="tensor=2,pipeline=2").memory[1]
    assert memory.total == sum(memory._asdict().values())
    assert memory.context == CONTEXT + DRIVER


def test_narrower_matrices_are_slower() -> None:
    """Tensor parallelism computes as much on each GPU and waits for others."""
    wide, narrow = (priced(mesh=f"tensor={ranks}", rows=1).seconds for ranks in (1, 8))
    assert narrow > wide


@pytest.mark.long
def test_tensor_ranks_of_two_machines_wait_for_the_network() -> None:
    near = priced(cluster="a100-80:16", mesh="tensor=8,pipeline=2")
    far = priced(cluster="a100-80:16", mesh="tensor=16")
    assert far.exposed["tensor"] > 4 * near.exposed["tensor"]
    assert any("go over the network" in reason for reason in _reasons(far))


def _reasons(found: Estimate) -> list[str]:
    from penstock.estimate.reasons import reasons

    return reasons(found)


def test_rows_side_by_side_are_work_of_as_many_microbatches() -> None:
    one, two = priced(mesh="pipeline=2"), priced(mesh="pipeline=2", rows=2)
    assert two.layout.microbatches == one.layout.microbatches // 2
    assert two.seconds == pytest.approx(one.seconds, rel=0.05)
    assert two.memory[0].activations == 2 * one.memory[0].activations


def test_a_cost_asks_kernels_once_for_equal_slices() -> None:
    layout = layout_from(row(schedule="seq1f1b", slices=4, mesh="pipeline=4"))
    cost: LayoutCost = layout_cost(layout, step_schedule(layout))
    assert len(cost.units) == 4 + 1  # and one for ops of whole stages


def test_slices_of_long_sequences_have_equal_work() -> None:
    """So a pipeline of many slices has the bubble of as many equal pieces."""
    found = priced(
        model="llama3-8b",
        cluster="h100:4",
        tokens=131072,
        batch_tokens=8 * 131072,
        mesh="pipeline=4",
        schedule="seq1f1b",
        slices=8,
    )
    lengths = step_schedule(found.layout).lengths
    assert (sum(lengths), len(lengths)) == (131072, 8)
    assert lengths[0] > 3 * lengths[-1]
    assert found.bubble < 0.15


@pytest.mark.parametrize(
    ("schedule", "slices"),
    [("1f1b", 1), ("seq1f1b", 4), ("zb-v", 1), ("dualpipev", 1), ("slimpipe-exchange", 4)],
)
def test_an_estimate_is_what_the_simulator_says(schedule: str, slices: int) -> None:
    found = priced(
        model="llama3.2-1b",
        cluster="b200:8",
        tokens=8192,
        batch_tokens=131072,
        mesh="pipeline=4",
        schedule=schedule,
        slices=slices,
    )
    step = step_schedule(found.layout)
    timeline = simulate(step.schedule, layout_cost(found.layout, step))
    assert found.seconds == float(timeline.makespan)
    assert found.bubble == pytest.approx(float(timeline.bubble_makespan), abs=1e-9)
    classes = [each[3:7] for each in found.memory]
    assert [sum(each) for each in classes] == [int(peak) for peak in timeline.peak]
    assert found.exposed["stages"] < 0.5 * found.seconds


def test_layouts_of_one_schedule_share_it() -> None:
    first, second = (layout_from(row(attention=kernel)) for kernel in ("flash1", "flash2"))
    assert step_schedule(first) is step_schedule(second)


WRONG = {
    "not a multiple of 131,072": row(batch_tokens=BATCH + 1),
    "cannot be shared by copies of 24 ranks": row(mesh="tensor=8,pipeline=3"),
    "the mesh has 32 ranks, the cluster 64 GPUs": row(mesh="tensor=8,replicas=4"),
    "does not compute in fp32": row(precision="fp32"),
    "41 stages share 40 layers": row(cluster="h100:41", mesh="pipeline=41", batch_tokens=2048 * 41),
    "take one of both": row(offload="all", recompute="all"),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_be_is_refused_with_a_hint(message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        estimate(layout_from(WRONG[message]))
    assert message in str(caught.value)
    assert caught.value.hint


def test_the_first_and_the_last_stage_have_the_vocabulary() -> None:
    found = priced(model=LLAMA_65B, cluster="a100-80:128", mesh="tensor=2,pipeline=4").memory
    ends = 2 * 128000 * 8192 // 2
    assert found[0].weights - found[1].weights == ends
    assert found[3].logits > 0 == found[0].logits


def test_vocabulary_shards_are_on_all_devices() -> None:
    found = priced(model=LLAMA_13B, mesh="pipeline=4", vocabulary=True).memory
    assert len({each.weights for each in found}) == 2  # the last one has the last norm too


def test_offloaded_activations_leave_the_gpu() -> None:
    """Long sequences are computed for longer than they are copied."""
    layout: dict[str, Any] = {"model": "llama3-8b", "cluster": "h100:2", "mesh": "pipeline=2"}
    layout |= {"tokens": 131072, "batch_tokens": 8 * 131072, "schedule": "gpipe"}
    kept, moved = (_step(priced(**layout, offload=each)) for each in ("none", "all"))
    assert moved < 0.7 * kept


def _step(found: Estimate) -> int:
    return found.memory[0].activations + found.memory[0].keys_values


def test_a_step_is_timed_before_its_memory_is_worked_out() -> None:
    layout = layout_from(row())
    found = estimate_step(layout)
    assert TimedStep.of(layout).seconds == found.seconds
    assert TimedStep.of(layout).estimate() == found


def test_no_class_of_memory_is_less_than_nothing() -> None:
    """A backward that is the last slice's leaves gradients of keys in place of what was kept."""
    changes = {"schedule": "terapipe", "cluster": "a100-80:2", "mesh": "tensor=2", "shard": "none"}
    found = priced(model="llama3-70b", tokens=8192, batch_tokens=16384, slices=4, **changes)
    assert min(found.memory[0]) >= 0
    assert found.memory[0].total == sum(found.memory[0])


def test_four_million_tokens_take_four_times_as_long_as_half_of_them() -> None:
    """FLOPs of attention grow with the square, beyond what whole numbers of 64 bits hold."""
    half, whole = (
        priced(model="llama3-70b", mesh="tensor=8,sequence=8", tokens=tokens, batch_tokens=tokens)
        for tokens in (1 << 21, 1 << 22)
    )
    assert whole.seconds / half.seconds == pytest.approx(4, rel=0.05)


def test_norms_that_are_not_fused_keep_four_bytes_more_of_an_element() -> None:
    """Their input is there in 32 bits, and once more as it is scaled; fused ones keep the input."""
    plain, fused = (
        priced(fused_norm=each, mesh="tensor=2").memory[0].activations for each in (False, True)
    )
    assert plain - fused == 2 * 40 * 2048 // 2 * 5120 * 4
    again, fused_again = (
        priced(fused_norm=each, mesh="tensor=2", recompute="all").memory[0].activations
        for each in (False, True)
    )
    assert again == fused_again
