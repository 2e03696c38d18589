"""Work and messages of layers that are cut at their attention, without running them."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from loops import each
from penstock.arch.config import ModelConfig
from penstock.core.schedule import Schedule
from penstock.cost.cut_workload import CutWorkload
from penstock.cost.stage_workload import workload_for
from penstock.cost.workload import Workload
from penstock.errors import ShapeError
from penstock.plan.stage_parameters import stage_elements
from penstock.schedules import build
from penstock.sim.links import transfer_parts
from penstock.transform import recompute_without_attention

MODEL = ModelConfig(4, 64, 192, 4, 4, 16, 256, element_bytes=2)
LENGTH = 512


def _cut(send: str, model: ModelConfig = MODEL) -> tuple[Schedule, Workload]:
    schedule = build("helixpipe", devices=2, microbatches=4, chunks=2, options={"send": send})
    return schedule, workload_for(schedule.shape, model, [[LENGTH]] * 4)


@each("send", ["heads", "weights"])
@each("model", [MODEL, replace(MODEL, kv_heads=2, qk_norm=True, qkv_bias=True)])
def test_the_work_is_that_of_whole_layers(send: str, model: ModelConfig) -> None:
    schedule, workload = _cut(send, model)
    whole = build("1f1b", devices=2, microbatches=4)
    expected = workload_for(whole.shape, model, [[LENGTH]] * 4).work(whole)
    for found, right in zip(workload.work(schedule), expected):
        assert found.sum() == right.sum()


def test_section_3_messages_carry_heads_or_weights_with_the_residual() -> None:
    """arXiv:2507.00394: 4 s h elements there, or 2 s h + 3 h^2; 2 s h from there."""
    h, s = MODEL.hidden, LENGTH
    for send, there in (("heads", 4 * s * h), ("weights", 2 * s * h + 3 * h * h)):
        schedule, workload = _cut(send)
        priced = workload.applied_to(schedule)
        assert priced.shape.boundary_bytes == (2 * there, 2 * 2 * s * h) * MODEL.layers
        parts, scale = transfer_parts(priced)
        assert {Fraction(int(part), scale) for part in parts} == {2 * there, 2 * 2 * s * h}


@each("send", ["heads", "weights"])
def test_attention_is_never_computed_again(send: str) -> None:
    schedule, workload = _cut(send)
    again = recompute_without_attention(schedule)
    table, work = again.table, workload.work(again)
    computed_again = table.of_kinds("R")
    assert work.attention[computed_again].sum() == 0
    assert work.attention.sum() == workload.work(schedule).attention.sum()
    assert work.linear[computed_again].sum() > 0
    stages = {*np.unique(table.stage[computed_again]).tolist()}
    attention = schedule.shape.weightless
    assert stages == {*range(9)} - (attention if send == "heads" else frozenset())


def test_only_attention_that_is_a_stage_can_be_left_out() -> None:
    with pytest.raises(ShapeError, match="1f1b has no stages of attention alone"):
        recompute_without_attention(build("1f1b", devices=2, microbatches=4))


@each("tied", [False, True])
def test_stages_have_all_parameters(tied: bool) -> None:
    model = replace(MODEL, qk_norm=True, qkv_bias=True, tied=tied)
    schedule, workload = _cut("heads", model)
    each_stage = [stage_elements(workload, stage) for stage in range(schedule.shape.stages)]
    assert sum(each_stage) == model.parameters + tied * model.head_weights
    assert each_stage[1::2] == [0] * model.layers


def test_a_model_of_other_depth_is_refused() -> None:
    schedule, _ = _cut("heads")
    with pytest.raises(ShapeError, match="does not fit a model of 6 layers"):
        workload_for(schedule.shape, replace(MODEL, layers=6), [[LENGTH]] * 4)


def test_a_workload_of_whole_layers_is_refused() -> None:
    schedule, workload = _cut("heads")
    assert isinstance(workload, CutWorkload)
    whole = Workload(MODEL, workload.lengths, workload.layers)
    with pytest.raises(ShapeError, match="9 stages \\(4 weightless\\)"):
        whole.work(schedule)
