"""Plans of models whose layers differ, or see other tokens: each layer counts as what it is."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from penstock.arch.config import ModelConfig
from penstock.arch.mesh_shape import MeshShape
from penstock.arch.presets import model
from penstock.cli.main import main
from penstock.cluster.read import read_cluster
from penstock.core.homes import stage_column
from penstock.errors import ShapeError
from penstock.estimate.layer_sorts import layer_sorts
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.price import estimate, layout_cost
from penstock.estimate.step_schedule import step_schedule
from penstock.planner.divisions import meshes
from penstock.planner.entries import Entries, entries_of
from penstock.planner.piece_times import PieceTimes
from penstock.planner.processes import PlanProcesses
from penstock.planner.search import search_plans
from penstock.planner.simulations import Simulations
from penstock.train.config.load import loads
from planner.problems import FUSED, candidates_of, problem_of

SUBLLM = model("subllm-1.3b")


def _layout(tensor: int = 1) -> TrainingLayout:
    cluster, mesh = read_cluster(f"h100:{2 * tensor}"), MeshShape(tensor=tensor)
    return TrainingLayout(FUSED, cluster, 8192, 8192, "1f1b", mesh, 2, layers=(5, 6))


def test_a_layer_is_of_the_sort_of_its_block() -> None:
    """Four layers, a fused MLP, two MLPs, four layers."""
    sorts = layer_sorts(FUSED)
    assert sorts.of_layer == (0, 0, 0, 0, 1, 2, 2, 0, 0, 0, 0)
    assert sorts.counts(range(3, 7)) == (1, 1, 2)
    assert [kind.ffn for kind in sorts.small.kinds] == [8192, 49152, 8192]
    plain = layer_sorts(model("llama3.2-1b"))
    assert plain.alike
    assert plain.every == [16]


def test_a_layer_is_of_the_sort_of_its_tokens_and_brackets() -> None:
    """Five layers of all tokens; five with fewer, in front of the first of which a bracket opens;
    four with fewest; and the same back."""
    sorts = layer_sorts(SUBLLM)
    assert sorts.of_layer == (
        *(0, 0, 0, 0, 0, 1, 2, 2, 2, 2),
        *(3, 4, 4, 5, 2, 2, 2, 2, 6, 0, 0, 0, 0, 0),
    )
    assert sorts.shown_by == (0, 5, 6, 10, 11, 13, 18)


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("kind", "FB")
def test_a_stage_takes_what_its_layers_take(kind: str, tensor: int) -> None:
    """Parts of a piece, added up for each of two stages, are the times of the estimate."""
    layout = _layout(tensor)
    step = step_schedule(layout)
    cost, table = layout_cost(layout, step), step.schedule.table
    computed = cost.computing(step.schedule)
    of_stages = [float(computed[table.of_kinds(kind) & (table.stage == at)][0]) for at in (0, 1)]
    part = PieceTimes(layout, (8192,)).computing[kind]
    boundary, embedding, head = part.others
    counts = [layer_sorts(FUSED).counts(own) for own in (range(5), range(5, 11))]
    wanted = [float(np.array(each) @ part.of_layers) + boundary for each in counts]
    assert of_stages == pytest.approx([wanted[0] + embedding, wanted[1] + head], rel=1e-9)


def test_a_device_keeps_what_its_layers_keep() -> None:
    layout = _layout()
    step = step_schedule(layout)
    cost, forward = layout_cost(layout, step), step.schedule.table.of_kinds("F")
    kept = sum(cost.amounts(step.schedule, size).ticks[forward] for size in ("act", "kv"))
    first = kept[stage_column(step.schedule)[forward] == 0][0]
    each = PieceTimes(layout, (8192,)).kept[:, 0]
    assert int(first) == int(np.array([4, 1, 0]) @ each)


@pytest.mark.parametrize("kind", "FB")
def test_stages_of_fewer_tokens_take_what_their_layers_take(kind: str) -> None:
    """Of four stages the second opens a bracket and the third closes it."""
    mesh, cluster = MeshShape(), read_cluster("h100:4")
    layout = TrainingLayout(SUBLLM, cluster, 8192, 4 * 8192, "1f1b", mesh, 4)
    step = step_schedule(layout)
    table = step.schedule.table
    computed = layout_cost(layout, step).computing(step.schedule)
    part = PieceTimes(layout, (8192,)).computing[kind]
    for stage in (1, 2):
        counts = np.array(layer_sorts(SUBLLM).counts(range(6 * stage, 6 * stage + 6)))
        found = float(computed[table.of_kinds(kind) & (table.stage == stage)][0])
        assert found == pytest.approx(float(counts @ part.of_layers) + part.others[0], rel=1e-9)


def test_meshes_with_cells_are_left_out_where_tokens_are() -> None:
    found = {(mesh.tensor, mesh.sequence) for mesh, _ in meshes(problem_of(SUBLLM))}
    assert found == {(1, 1)}
    for axis in ("sequence", "tensor"):
        with pytest.raises(ShapeError, match=f"leaves out tokens, and {axis} is 2") as caught:
            problem_of(SUBLLM, mesh=f"{axis}=2")
        assert caught.value.hint


def test_schedules_that_lend_attention_are_left_out_where_tokens_are() -> None:
    given = {"schedule": "slimpipe-exchange", "mesh": "tensor=1,sequence=1"}
    assert len(candidates_of(problem_of(FUSED, **given)))
    assert not len(candidates_of(problem_of(SUBLLM, **given)))


@lru_cache(maxsize=1)
def _entries() -> Entries:
    return entries_of(problem_of(FUSED, schedule="1f1b"), 4, 8, ())


def test_devices_count_the_layers_of_each_sort() -> None:
    """Four devices with 3, 3, 3 and 2 layers."""
    found = _entries()
    even = [entry.layers for entry in found.entries].index(())
    first, last, most, end = found.layers[even].tolist()
    assert (first, last, end) == ([3, 0, 0], [2, 0, 0], [2, 0, 0])
    assert most == [1, 1, 1]  # a fused layer of six MLPs takes longer than three layers
    assert found.before[even, 2].tolist() == [3, 0, 0]
    weights = np.array([2.0, 5.0, 1.0])
    assert found.of_layers(weights)[even].tolist() == [6, 4, 8, 4]
    assert found.of_smallest(weights)[even].tolist() == [4]  # the last stage
    assert found.of_smallest(np.array([9.0, 1.0, 1.0]))[even].tolist() == [11]  # the second


def test_a_balanced_split_gives_a_long_layer_few_others() -> None:
    (counts,) = (entry.layers for entry in _entries().entries if entry.layers)
    four = replace(_layout(), cluster=read_cluster("h100:4"), batch_tokens=8 * 8192, pipeline=4)
    even, balanced = (estimate(replace(four, layers=each)) for each in ((), counts))
    assert balanced.seconds < even.seconds
    assert max(balanced.works) < max(even.works)


@pytest.mark.long
@pytest.mark.parametrize("config", [FUSED, SUBLLM], ids=["fused", "subllm"])
def test_the_best_plan_is_one_of_the_model(config: ModelConfig) -> None:
    problem = problem_of(config, mesh="tensor=1,sequence=1", schedule="1f1b", rows=1)
    found = search_plans(
        candidates_of(problem), 3, 200, lambda *_: None, Simulations(PlanProcesses(problem))
    )
    assert found.open == 0
    assert found.plans[0].layout.model == config
    assert found.plans[0].seconds == estimate(found.plans[0].layout).seconds


@pytest.mark.processes
def test_a_plan_is_saved_as_a_configuration_that_training_reads(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    asked = ["--model", "tiny-fused", "--cluster", "h100:2", "--tokens", "64"]
    asked += ["--batch-tokens", "512", "--mesh", "pipeline=2", "--schedule", "1f1b"]
    assert main(["plan", *asked, "--layers", "2,2", "--save", str(path)]) == 0
    settings = loads(path.read_text())
    assert settings.model.config == model("tiny-fused")
    assert settings.pipeline.layers == (2, 2)
