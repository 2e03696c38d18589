"""Estimates of a model that leaves out tokens: layers count with the tokens that get there."""

import json
from dataclasses import replace

import numpy as np
import pytest

from penstock.arch.config import ModelConfig
from penstock.arch.mesh_shape import MeshShape
from penstock.arch.presets import model
from penstock.arch.subsampling import Subsampling
from penstock.cli.main import main
from penstock.cluster.read import read_cluster
from penstock.cost.stage_workload import workload_for
from penstock.errors import ShapeError
from penstock.estimate.balanced_layers import balanced_layers
from penstock.estimate.layer_seconds import UnitTokens
from penstock.estimate.layout import Recompute, TrainingLayout
from penstock.estimate.layout_cost import LayoutCost
from penstock.estimate.price import estimate, layout_cost
from penstock.estimate.products import KERNEL_START
from penstock.estimate.step_schedule import StepSchedule, step_of, step_schedule
from penstock.estimate.utilisation import token_flops, token_flops_again

SUBLLM = model("subllm-1.3b")
PLAIN = replace(SUBLLM, subsampling=None)
LENGTH, FIRST, SECOND = 4096, 2621, 1677
"""Tokens of a sequence, and those that get to both levels."""
WIDTH = 2048 * 2


def layout(config: ModelConfig = SUBLLM, schedule: str = "1f1b") -> TrainingLayout:
    cluster = read_cluster("h200:4")
    return TrainingLayout(config, cluster, LENGTH, 16 * LENGTH, schedule, pipeline=4)


def priced(wanted: TrainingLayout) -> tuple[LayoutCost, StepSchedule]:
    step = step_schedule(wanted)
    return layout_cost(wanted, step), step


def stage_seconds(wanted: TrainingLayout, kind: str) -> list[float]:
    """Seconds that an op of a kind computes, on each stage."""
    cost, step = priced(wanted)
    table, computed = step.schedule.table, cost.computing(step.schedule)
    here = table.of_kinds(kind)
    return [
        float(computed[here & (table.stage == stage)][0])
        for stage in range(step.schedule.shape.stages)
    ]


def square(tokens: int) -> UnitTokens:
    return UnitTokens(tokens, tokens, tokens, tokens**2 / 2, tokens**2)


@pytest.mark.parametrize(
    ("kind", "passes", "bracket"),
    [("F", ("forward",), (5, 2)), ("B", ("inputs", "weights"), (15, 7))],
)
def test_a_stage_takes_its_layers_with_the_tokens_that_get_there(
    kind: str, passes: tuple[str, ...], bracket: tuple[int, int]
) -> None:
    """The second of four stages has layers 6 to 11: four on the first level, a bracket that opens,
    two on the second."""
    cost, _ = priced(layout())
    plain = replace(cost.times, part=PLAIN, attended=PLAIN)
    first, second = (plain.seconds(square(tokens)) for tokens in (FIRST, SECOND))
    moved = (bracket[0] * FIRST + bracket[1] * SECOND) * WIDTH / cost.times.memory_rate
    wanted = sum(4 * getattr(first, each) + 2 * getattr(second, each) for each in passes)
    found = stage_seconds(layout(), kind)[1]
    assert found == pytest.approx(wanted + moved + 6 * KERNEL_START, rel=1e-9)


def test_a_model_that_keeps_all_tokens_takes_what_the_plain_one_takes_and_its_brackets() -> None:
    """Both pairs open in the first half and close in the second; rows are moved for each."""
    every = replace(SUBLLM, subsampling=replace(SUBLLM.subsampling, keep=1.0))  # type: ignore[type-var]
    rate = priced(layout())[0].times.memory_rate
    for kind, (opens, closes) in {"F": (7, 52), "B": (22, 52)}.items():
        both = (stage_seconds(layout(each), kind) for each in (every, PLAIN))
        more = [one - other for one, other in zip(*both)]
        each = [rows * LENGTH * WIDTH / rate + 6 * KERNEL_START for rows in (opens, closes)]
        wanted = [each[0], each[0], each[1], each[1]]
        assert more == pytest.approx(wanted, rel=1e-6)


def test_messages_are_those_that_simulate_counts() -> None:
    """Of a boundary of all tokens, rounded up to a part in 1,024."""
    h = WIDTH
    outer = FIRST * h + LENGTH * h + 8 * FIRST
    inner = SECOND * h + (LENGTH + FIRST) * h + 8 * (FIRST + SECOND)
    parts = [-(-1024 * each // (LENGTH * h)) for each in (outer, inner, outer)]
    cost, step = priced(layout())
    assert list(step.schedule.shape.boundary_bytes) == parts
    assert list(step_of(step.schedule, layout()).schedule.shape.boundary_bytes) == parts
    (plain, _), link = priced(layout(PLAIN)), cost.link(0, 1)
    assert link.latency == plain.link(0, 1).latency
    whole = float(plain.link(0, 1).per_byte)
    assert float(link.per_byte) * parts[1] == pytest.approx(whole * inner / (LENGTH * h), rel=1e-3)


def test_what_stays_on_a_device_is_not_sent() -> None:
    outer, middle = FIRST / LENGTH, SECOND / LENGTH
    found = step_schedule(layout(schedule="zb-v")).schedule.shape.boundary_bytes
    wanted = [1, outer, outer, middle, outer, outer, 1]
    assert np.array(found) / 1024 == pytest.approx(wanted, abs=3e-3)


@pytest.mark.parametrize("size", ["act", "kv", "stash", "ckpt"])
def test_buffers_are_those_that_simulate_counts(size: str) -> None:
    cost, step = priced(layout())
    shape = step.schedule.shape
    work = workload_for(shape, SUBLLM, ((LENGTH,),) * shape.microbatches)
    found = cost.amounts(step.schedule, size)
    assert (found.ticks == work.bytes(step.schedule, size)).all()
    assert found.tick == 1


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-h1", "zb-v"])
def test_bubbles_are_near_those_of_simulate(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels take other times than peaks say, and a step has an end; stages are as unequal."""
    sizes = ["-p", "4", "-m", "16", "--model", "subllm-1.3b", "--tokens", str(LENGTH), "--json"]
    assert main(["simulate", name, *sizes]) == 0
    simulated = json.loads(capsys.readouterr().out)["bubble_makespan"]
    assert estimate(layout(schedule=name)).bubble == pytest.approx(simulated, abs=0.04)


def test_a_step_is_shorter_than_that_of_the_plain_model() -> None:
    one = replace(layout(), pipeline=1, cluster=read_cluster("h200:1"))
    own, plain = (estimate(replace(one, model=each)) for each in (SUBLLM, PLAIN))
    flops = token_flops(SUBLLM, LENGTH) / token_flops(PLAIN, LENGTH)
    assert flops < own.seconds / plain.seconds < 1.1 * flops
    shares = own.flops_utilisation * own.seconds, plain.flops_utilisation * plain.seconds
    assert shares[0] / shares[1] == pytest.approx(flops, rel=1e-9)


def test_utilisation_counts_layers_that_tokens_go_through() -> None:
    """Matrices 0.7516 of 24 layers, pairs 0.6153 of them."""
    layer, heads = PLAIN.layer_weights, 2 * PLAIN.head_weights
    met = 24 * (0.7516 * 6 * layer + 0.6153 * 12 * 16 * 128 * LENGTH)
    assert token_flops(SUBLLM, LENGTH) == pytest.approx(met + 6 * heads, rel=1e-4)
    again = token_flops_again(SUBLLM, LENGTH, 24) - token_flops(SUBLLM, LENGTH)
    assert again == pytest.approx(met / 3, rel=1e-4)


def test_a_balanced_split_gives_layers_of_few_tokens_to_few_stages() -> None:
    counts = balanced_layers(layout())
    assert sum(counts) == 24
    assert counts[0] < counts[1]
    even, balanced = (estimate(replace(layout(), layers=each)) for each in ((), counts))
    assert balanced.seconds < 0.85 * even.seconds


def test_layers_that_are_computed_again_keep_less_and_take_a_forward_more() -> None:
    """Layers alone: what brackets keep stays."""
    again = replace(layout(), recompute=Recompute("all"))
    kept, less = priced(layout())[0], priced(again)[0]
    step = step_schedule(again)
    forward = step.schedule.table.of_kinds("F") & (step.schedule.table.stage == 1)
    act = [int(each.amounts(step.schedule, "act").ticks[forward][0]) for each in (kept, less)]
    layers = (4 * FIRST + 2 * SECOND) * (PLAIN.saved_bytes - WIDTH)
    assert act[0] - act[1] == pytest.approx(layers, rel=1e-3)
    more = [b - a for a, b in zip(stage_seconds(layout(), "B"), stage_seconds(again, "B"))]
    plain = replace(kept.times, part=PLAIN, attended=PLAIN)
    first, second = (plain.seconds(square(tokens)).forward for tokens in (FIRST, SECOND))
    assert more[1] == pytest.approx(4 * first + 2 * second, rel=1e-9)


def test_scores_that_attention_keeps_are_of_the_tokens_that_are_there() -> None:
    both = [priced(replace(layout(), attention=each))[0] for each in ("unfused", "flash2")]
    step = step_schedule(layout())
    forward = step.schedule.table.of_kinds("F") & (step.schedule.table.stage == 1)
    act = [int(each.amounts(step.schedule, "act").ticks[forward][0]) for each in both]
    assert act[0] - act[1] == (4 * FIRST**2 + 2 * SECOND**2) * 16 * 2


@pytest.mark.parametrize(("axis", "given"), [("sequence", 2), ("tensor", 4)])
def test_ranks_of_a_cell_are_refused_by_name(axis: str, given: int) -> None:
    mesh = MeshShape(**{axis: given})
    with pytest.raises(ShapeError, match=f"leaves out tokens, and {axis} is {given}") as caught:
        replace(layout(), mesh=mesh, pipeline=4 // given)
    assert "at 1" in caught.value.hint


@pytest.mark.parametrize(("name", "slices"), [("slimpipe-exchange", 4), ("helixpipe", None)])
def test_attention_that_is_computed_elsewhere_is_refused(name: str, slices: int | None) -> None:
    with pytest.raises(ShapeError) as caught:
        estimate(replace(layout(schedule=name), slices=slices))
    assert "a schedule of whole layers" in caught.value.hint


def test_levels_without_layers_of_their_own_are_no_work() -> None:
    config = replace(PLAIN, layers=4, subsampling=Subsampling("T((TT))T"))
    one = replace(layout(config), pipeline=2, cluster=read_cluster("h200:2"))
    assert [each.layers for each in priced(one)[0].workload.of_sorts] == [(1, 1), (1, 1)]
    assert estimate(one).seconds < estimate(replace(one, model=replace(PLAIN, layers=4))).seconds
