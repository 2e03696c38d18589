"""Predictions beside measurements: what a look at a step says of its schedule."""

import weakref
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.cost.workload import Workload
from penstock.plan.communicators import communication_bytes, communicators
from penstock.plan.memory import step_peaks
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.transport import Alone
from penstock.run.observe.inspected_step import StepLook, look_at_step
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import build_engine
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin
from penstock.run.watchdog.position import Tracker
from penstock.schedules import build
from penstock.sim import simulate
from penstock.train.report import report as report_module
from penstock.train.report.report import EndedRun, _footprints, _unsliced, compare_step, report
from penstock.train.report.wording import drawn, memory_table
from run.jobs import CPU, batch_of
from run.plans import plan_of
from train.samples import short

pytestmark = pytest.mark.torch

PLAN = plan_of(build("seq1f1b", devices=2, microbatches=3, slices=2))


def _seen(plan: StepPlan) -> StepLook:
    """A step in which a forward took 1 ms and a backward 2."""
    seconds = [{"F": 1e-3, "B": 2e-3}[op.kind] for op in plan.schedule.table.ops()]
    return StepLook(simulate(plan.schedule), seconds)


def test_a_prediction_is_the_simulation_of_the_times_that_ops_took() -> None:
    found = compare_step(PLAN, _seen(PLAN), 2, CPU)
    assert found.name == "seq1f1b"
    assert found.predicted.makespan == simulate(PLAN.schedule).makespan * 2 * Fraction(1, 1000)
    assert found.measured is not found.predicted


def test_fewer_cores_than_devices_are_a_prediction_of_their_own() -> None:
    found = compare_step(PLAN, _seen(PLAN), 1, CPU)
    assert found.shared == sum(found.predicted.work)
    assert compare_step(PLAN, _seen(PLAN), 2, CPU).shared is None


@pytest.mark.parametrize("rows", [1, 3])
def test_there_is_one_prediction_of_memory(rows: int) -> None:
    """The peak of the table is that of the timeline, and that of the plan, in bytes."""
    plan = replace(PLAN, rows=rows)
    found = compare_step(plan, _seen(plan), 2, CPU)
    peaks = step_peaks(plan.schedule, Workload(plan.layout.model, plan.lengths, (2, 2)), rows)
    assert list(found.predicted.peak) == peaks
    (picture, _) = drawn(found)
    assert [int(curve.level.max()) * picture.grain * 10**6 for curve in picture.curves] == peaks
    assert all(f"{peak / 1e6:.2f}" in memory_table([found]) for peak in peaks)


def ended(folder: Path) -> EndedRun:
    """A run on one device that is to be compared with another schedule."""
    settings = short(
        f"run.directory={folder}", "pipeline.devices=1", 'log.compare=["1f1b"]', "run.dtype=float64"
    )
    plan = plan_of(build("gpipe", devices=1, microbatches=4))
    engine = Engine(plan, Mesh(Grid()), Alone(), adam=AdamW(), device=CPU)
    begin(engine, 1)
    folder.mkdir()
    return EndedRun(
        settings, engine, Tracker(), batch_of(plan), 4, folder / "checkpoint", lambda: None
    )


@pytest.mark.long
def test_a_comparison_needs_no_more_memory_than_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the other engine is built, nothing of the run's is there, and it has no moments."""
    run, built = ended(tmp_path / "run"), list[Engine]()
    tensors = [run.engine.weights[0].main, run.engine.weights[0].grad]
    tensors += run.engine.optimizers[0].moments.values()
    there = [weakref.ref(tensor.untyped_storage()) for tensor in tensors]
    del tensors

    def watched(*given: Any) -> Engine:
        assert [each() for each in there] == [None] * len(there)
        built.append(build_engine(*given))
        assert not any(optimizer.moments for optimizer in built[0].optimizers.values())
        return built[0]

    monkeypatch.setattr(report_module, "build_engine", watched)
    report(run)
    assert len(built) == 1
    assert "1f1b" in (tmp_path / "run/report.txt").read_text()


@pytest.mark.long
def test_a_schedule_without_room_is_left_out_of_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_module, "free_bytes", lambda device: -(10**12))
    report(ended(tmp_path / "run"))
    text = (tmp_path / "run/report.txt").read_text()
    assert "1f1b is not run for comparison: rank 0 would need 0.00 GB and has -1000.00 GB" in text
    assert " needs " not in text


def test_the_room_for_a_comparison_includes_communicators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where tensors are exchanged over NCCL: nothing else has communicators."""
    run = ended(tmp_path / "run")
    plain = _footprints(PLAN, run.engine)
    monkeypatch.setattr(report_module, "over_nccl", lambda group, device: True)
    run.engine.mesh.replicas = 2
    assert [each.communication for each in plain] == [0] * len(plain)
    more = [each.looked_at for each in _footprints(PLAN, run.engine)]
    counts = communicators(PLAN.program(2), 2)
    assert more == [
        each.looked_at + communication_bytes(count) for each, count in zip(plain, counts)
    ]
    assert min(counts) > 0


def test_a_schedule_to_compare_with_has_the_same_sequences_in_one_piece() -> None:
    other = _unsliced(PLAN, build("1f1b", devices=2, microbatches=3))
    assert other.lengths == ((24,),) * 3
    assert other.rows == PLAN.rows
    assert (other.layout.model, other.layout.dtype) == (PLAN.layout.model, PLAN.layout.dtype)


def test_one_device_is_predicted_to_need_what_its_ops_needed() -> None:
    plan = plan_of(build("1f1b", devices=1, microbatches=2), dtype=torch.float32)
    engine = Engine(plan, Mesh(Grid()), Alone(), adam=AdamW(), device=CPU)
    begin(engine, 1)
    seen = look_at_step(engine, batch_of(plan))
    assert seen is not None
    found = compare_step(plan, seen, 1, CPU)
    assert float(found.predicted.makespan) == pytest.approx(sum(seen.seconds), rel=1e-3)
    assert found.measured.makespan > 0
