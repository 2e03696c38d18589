"""How much memory a device needs: what it holds all the time, and what a step adds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from penstock.arch.cell_shape import CellShape
from penstock.arch.config import ModelConfig
from penstock.core.schedule import Schedule
from penstock.cost.cell_workload import rank_workload
from penstock.cost.temporary import GPU_KERNELS
from penstock.cost.workload import Workload
from penstock.plan.memory import Footprint, footprints, step_peaks
from penstock.plan.receive_slots import slot_bytes
from penstock.plan.stage_parameters import stage_elements
from penstock.schedules import build
from penstock.transform import recompute_all

MODEL = ModelConfig(8, 32, 64, 4, 2, 8, 100, element_bytes=4)
VARIANTS = {
    "float32": MODEL,
    "bfloat16": replace(MODEL, element_bytes=2),
    "float64": replace(MODEL, element_bytes=8),
    "tied, biased and normed": replace(MODEL, tied=True, qkv_bias=True, qk_norm=True),
}
SCHEDULES = {
    "one stage each": build("1f1b", devices=4, microbatches=4),
    "several stages": build("interleaved", devices=2, microbatches=4, chunks=2),
    "folded": build("zb-v", devices=2, microbatches=4),
}


def _workload(schedule: Schedule, model: ModelConfig = MODEL, length: int = 64) -> Workload:
    cuts = {count: (length // count,) * count for count in schedule.shape.slices}
    return Workload.of(schedule.shape, model, cuts[schedule.shape.slices[0]])


def _peak_of(work: Callable[[], object], *existing: Any) -> int:
    """Bytes of host tensors that are alive at once while something is done, beside those before."""
    from penstock.run.observe.memory_meter import LiveBytes

    with LiveBytes() as meter:
        meter.ignore(*existing)
        work()
    return meter.peak


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.parametrize("model", VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_what_is_held_all_the_time_is_what_the_engine_allocates(
    schedule: Schedule, model: ModelConfig
) -> None:
    import torch

    from penstock.run.comm.grid import Grid
    from penstock.run.comm.mesh import Mesh
    from penstock.run.comm.transport import Alone
    from penstock.run.program.layout import Layout
    from penstock.run.program.step_plan import StepPlan
    from penstock.run.step.engine import Engine
    from penstock.run.step.optimizer import AdamW

    types = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
    workload = _workload(schedule, model)
    layout = Layout.of(model, schedule, 64, dtype=types[model.element_bytes])
    plan = StepPlan(layout, schedule, workload.lengths)
    found = footprints(schedule, workload)
    for device in range(schedule.shape.devices):
        mesh = Mesh(Grid(device=schedule.shape.devices), device)
        engine = Engine(plan, mesh, Alone(), adam=AdamW(), device=torch.device("cpu"))
        flat = list(engine.weights.values())
        moments = [m.nbytes for o in engine.optimizers.values() for m in o.moments.values()]
        kept = sum(w.main.nbytes + w.grad.nbytes for w in flat) + sum(moments)
        narrow = sum(w.value.nbytes for w in flat if w.value is not w.main)
        assert (found[device].optimizer, found[device].weights) == (kept, narrow)
        ends = [
            _peak_of(partial(o.update, 0.0, 1.0), w.main, w.value, w.grad)
            for o, w in zip(engine.optimizers.values(), flat)
        ]
        assert max(ends) == pytest.approx(found[device].end, rel=1e-3)


def test_an_update_on_a_gpu_needs_no_roots() -> None:
    schedule = build("1f1b", devices=4, microbatches=4)
    host = _workload(schedule)
    gpu = replace(host, needs=GPU_KERNELS)
    for own, other in zip(footprints(schedule, host), footprints(schedule, gpu)):
        assert own.end > 0 == other.end
        assert (own.weights, own.optimizer) == (other.weights, other.optimizer)
    assert rank_workload(gpu, CellShape(tensor=2)).needs is GPU_KERNELS


@pytest.mark.parametrize("model", VARIANTS.values(), ids=VARIANTS.keys())
def test_stages_hold_every_parameter_once_and_a_tied_one_at_both_ends(model: ModelConfig) -> None:
    workload = _workload(build("1f1b", devices=4, microbatches=4), model)
    held = sum(stage_elements(workload, stage) for stage in range(4))
    assert held == model.parameters + model.tied * model.head_weights


def test_rows_side_by_side_need_as_many_times_as_much() -> None:
    schedule = build("seq1f1b", devices=4, microbatches=4, slices=4)
    workload = _workload(schedule)
    once, thrice = step_peaks(schedule, workload), step_peaks(schedule, workload, 3)
    assert thrice == [3 * peak for peak in once]


def test_slots_are_as_large_as_the_longest_slice() -> None:
    schedule = build("seq1f1b", devices=3, microbatches=4, slices=2)
    workload = replace(_workload(schedule), lengths=((40, 24),) * 4)
    each = 40 * MODEL.boundary_bytes
    found = slot_bytes(schedule, workload)
    # one channel reaches an end, two the middle; each has the slot it needs and a spare one
    assert (found[0], found[1], found[2]) == (2 * each, 4 * each, 2 * each)


def test_a_footprint_is_the_sum_of_its_parts() -> None:
    assert Footprint(1, 20, 300).total == 321


def test_communicators_need_room_and_are_not_allocated_by_torch() -> None:
    alone, together = Footprint(1, 20, 300), Footprint(1, 20, 300, communication=4000)
    assert together.total == alone.total
    assert together.looked_at == alone.looked_at + 4000


def _peaks(schedule: Schedule) -> Sequence[int]:
    return step_peaks(schedule, _workload(schedule))


def test_slices_and_recomputing_need_less_in_a_step() -> None:
    whole = build("1f1b", devices=4, microbatches=8)
    sliced = build("seq1f1b", devices=4, microbatches=8, slices=4)
    assert max(_peaks(sliced)) < 0.6 * max(_peaks(whole))
    assert max(_peaks(recompute_all(whole))) < 0.6 * max(_peaks(whole))


def test_keys_and_values_of_a_whole_sequence_are_not_kept_by_forwards_that_keep_their_input() -> (
    None
):
    """Only slices need each other's: without slices they are made again with the rest."""
    whole = recompute_all(build("1f1b", devices=4, microbatches=8))
    wide = replace(MODEL, heads=8, kv_heads=8, head_size=32)
    few = replace(wide, heads=8, kv_heads=1)
    peaks = [step_peaks(whole, _workload(whole, model)) for model in (wide, few)]
    kept = 64 * (wide.kv_bytes - few.kv_bytes) * 2  # of one microbatch, in two layers
    differences = [first - second for first, second in zip(*peaks)]
    assert max(differences) <= 3 * kept
