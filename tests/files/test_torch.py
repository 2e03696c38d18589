"""PyTorch's schedules come in, ours go out: the CSV against the installed PyTorch itself.

The schedules are built on mock stages, without process groups, as PyTorch's own visualizer does.
"""

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock
from warnings import catch_warnings, simplefilter

import pytest

from loops import looped
from penstock.check import check
from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.files import torch_csv
from penstock.schedules import Case, build, find, registry
from penstock.sim import simulate

pytestmark = pytest.mark.torch

DEVICES = (2, 4, 8)


class Built(NamedTuple):
    """A request to PyTorch: its class, devices, microbatches and stages per device."""

    kind: str
    p: int
    m: int
    v: int = 1

    def __str__(self) -> str:
        return f"{self.kind} -p {self.p} -m {self.m} -v {self.v}"


SINGLE = [Built(kind, p, m) for kind in ("GPipe", "1F1B") for p in DEVICES for m in (p, 2 * p + 3)]
MULTI = [
    *(Built("Interleaved1F1B", p, m, v) for p in DEVICES for m in (p, 3 * p) for v in (2, 3)),
    *(Built("LoopedBFS", p, m, v) for p in DEVICES for m in (p, 2 * p + 3) for v in (2, 3)),
    *(Built("InterleavedZeroBubble", p, m, v) for p in DEVICES for m in (p, 3 * p) for v in (2, 3)),
    *(Built("ZBVZeroBubble", p, m, 2) for p in DEVICES for m in (2 * p, 3 * p + 1)),
    *(Built("DualPipeV", p, m, 2) for p in DEVICES for m in (2 * p, 3 * p + 1)),
]


@pytest.fixture(scope="module")
def pipelining() -> Any:
    """PyTorch's schedules; importing them takes seconds."""
    pytest.importorskip("torch")
    return pytest.importorskip("torch.distributed.pipelining.schedules")


@pytest.fixture(scope="module")
def stage(pipelining: Any) -> Callable[..., Any]:
    """A maker of stages that compute nothing and belong to no process group."""
    from torch.distributed.pipelining.stage import PipelineStage

    def make(devices: int, stages: int, index: int = 0) -> Any:
        made = mock.create_autospec(PipelineStage, instance=True)
        made.group_rank, made.group_size, made.submod = index, devices, None
        made.stage_index, made.num_stages = index, stages
        for post in (
            "get_fwd_recv_ops",
            "get_fwd_send_ops",
            "get_bwd_recv_ops",
            "get_bwd_send_ops",
        ):
            getattr(made, post).return_value = []
        return made

    return make


@pytest.fixture(scope="module")
def construct(pipelining: Any, stage: Callable[..., Any]) -> Callable[[Built], Any]:
    """A maker of PyTorch's schedules with several stages per device."""

    def make(built: Built) -> Any:
        kind = getattr(pipelining, f"Schedule{built.kind}")
        return kind([stage(built.p, built.p * built.v)] * built.v, built.m)

    return make


@pytest.fixture(scope="module")
def executed(pipelining: Any, stage: Callable[..., Any]) -> Callable[[Built], str]:
    """A maker of the CSV of what a schedule with one stage per device does when it is stepped."""

    def row(built: Built, device: int) -> Iterator[str]:
        made = stage(built.p, built.p, device)
        schedule = getattr(pipelining, f"Schedule{built.kind}")(made, built.m)
        schedule._initialize_stage = mock.Mock()  # it would open connections
        schedule._step_microbatches([()] * built.m, [{}] * built.m)
        letters = {"forward_one_chunk": "F", "backward_one_chunk": "B"}
        for name, positional, _ in made.method_calls:
            if name in letters:
                yield f"{device}{letters[name]}{positional[0]}"

    def make(built: Built) -> str:
        return _csv([list(row(built, device)) for device in range(built.p)])

    return make


def _csv(rows: list[Any]) -> str:
    """Rows of actions, written as PyTorch writes them."""
    written = io.StringIO(newline="")
    csv.writer(written).writerows(rows)
    return written.getvalue()


def _proven_and_priced(schedule: Schedule, built: Built) -> None:
    shape = schedule.shape
    assert (shape.devices, shape.stages, shape.microbatches) == (
        built.p,
        built.p * built.v,
        built.m,
    )
    assert check(schedule).findings == ()
    timeline = simulate(schedule)
    assert timeline.work == (3 * built.m,) * built.p
    assert 3 * built.m < timeline.makespan <= 3 * (built.m + built.p - 1)


@pytest.mark.long
@pytest.mark.parametrize("built", MULTI, ids=str)
def test_pytorchs_schedule_imports_is_proven_and_priced(
    built: Built, construct: Callable[[Built], Any], tmp_path: Path
) -> None:
    theirs = construct(built)
    for format in ("compute_only", "compute_comms"):
        theirs._dump_csv(tmp_path / format, format)
    schedule = torch_csv.loads((tmp_path / "compute_only").read_text())
    with pytest.warns(UserWarning, match="sends and receives"):
        assert torch_csv.loads((tmp_path / "compute_comms").read_text()) == schedule
    _proven_and_priced(schedule, built)


@pytest.mark.long
@pytest.mark.parametrize("built", SINGLE, ids=str)
def test_what_pytorch_does_with_one_stage_per_device_imports_is_proven_and_priced(
    built: Built, executed: Callable[[Built], str]
) -> None:
    schedule = torch_csv.loads(executed(built))
    _proven_and_priced(schedule, built)
    assert simulate(schedule).makespan == 3 * (built.m + built.p - 1)


@pytest.mark.long
@pytest.mark.parametrize("built", [built for built in SINGLE if built.kind == "GPipe"], ids=str)
def test_gpipes_record_is_what_pytorch_does(
    built: Built, pipelining: Any, stage: Callable[..., Any], executed: Callable[[Built], str]
) -> None:
    record = pipelining.ScheduleGPipe(stage(built.p, built.p), built.m).pipeline_order
    assert torch_csv.loads(_csv(list(record.values()))) == torch_csv.loads(executed(built))


def test_the_record_of_1f1b_is_refused_because_its_last_device_counts_from_one(
    pipelining: Any, stage: Callable[..., Any]
) -> None:
    """PyTorch steps 1F1B correctly, but its record says 1F1 1B0 1F2 ... on the last device."""
    record = pipelining.Schedule1F1B(stage(2, 2), 4).pipeline_order
    schedule = torch_csv.loads(_csv(list(record.values())))
    assert " ".join(map(str, schedule.lane(1))) == "1F1 1B0 1F2 1B1 1F3 1B2 1F4 1B3"
    assert not check(schedule).proven


OURS = {"ZBVZeroBubble": "zb-v", "DualPipeV": "dualpipev"}


@pytest.mark.long
@pytest.mark.parametrize("built", [built for built in MULTI if built.kind in OURS], ids=str)
def test_ours_equals_pytorchs_order(built: Built, construct: Callable[[Built], Any]) -> None:
    theirs = torch_csv.loads(_csv(list(construct(built).pipeline_order.values())))
    ours = build(OURS[built.kind], devices=built.p, microbatches=built.m)
    assert list(ours.table.lanes()) == list(theirs.table.lanes())
    assert ours.pairs == theirs.pairs
    assert ours == theirs


@pytest.mark.long
@pytest.mark.parametrize("built", SINGLE, ids=str)
def test_ours_equals_what_pytorch_does(built: Built, executed: Callable[[Built], str]) -> None:
    ours = build(built.kind.lower(), devices=built.p, microbatches=built.m)
    assert torch_csv.loads(executed(built)) == ours


def _cases(wanted: Callable[[Case], bool]) -> Callable[[Any], Any]:
    """All registered requests of some sort, schedule by schedule."""
    chosen = {name: list(filter(wanted, spec.cases)) for name, spec in registry().items()}
    return looped(
        "schedule", {name: partial(_built, name, cases) for name, cases in chosen.items() if cases}
    )


def _built(name: str, cases: list[Case]) -> Iterator[tuple[str, Schedule]]:
    spec = find(name)
    for case in cases:
        yield (
            f"{name} {case}",
            spec.build(spec.case(case.p, case.m, case.v, case.k, case.options)),
        )


def _sayable(schedule: Schedule) -> bool:
    """Whether it has nothing but compute lanes, and pairs of a forward and a backward."""
    shape = schedule.shape
    others = (schedule.loans, schedule.gangs, schedule.after, shape.skips, shape.weightless)
    plain = (shape.embed, shape.loss, shape.copies, max(shape.slices)) == ("F", "F", 1, 1)
    return (
        schedule.table.kinds <= set("FBIW")
        and set(schedule.table.lane_stream) == {"compute"}
        and all(sum(op.kind == "F" for op in pair) == 1 for pair in schedule.pairs)
        and plain
        and not any(others)
    )


@pytest.mark.long
@_cases(lambda case: case.k == 1)
@pytest.mark.matrix
def test_pytorchs_loader_accepts_what_we_export(
    schedule: Schedule, pipelining: Any, stage: Callable[..., Any], tmp_path: Path
) -> None:
    if not _sayable(schedule):
        with pytest.raises(ShapeError, match="PyTorch's CSV"):
            torch_csv.dumps(schedule)
        return
    shape, path = schedule.shape, tmp_path / "schedule.csv"
    path.write_text(torch_csv.dumps(schedule))
    stages = [stage(shape.devices, shape.stages)] * int(shape.chunks)
    runtime = pipelining._PipelineScheduleRuntime(stages, shape.microbatches)
    runtime._load_csv(path, format="compute_only")
    order = _without_shares(schedule)
    assert torch_csv.loads(_csv(list(runtime.pipeline_order.values()))) == order
    comms = _csv(list(runtime.pipeline_order_with_comms.values()))
    with catch_warnings():
        simplefilter("ignore")
        assert torch_csv.loads(comms) == order


def _without_shares(schedule: Schedule) -> Schedule:
    """The same order of stages that weigh the same: what a CSV can say."""
    even = replace(schedule.shape, stage_share=(), kind_share=(), layers=())
    return replace(schedule, shape=even, derived={})


@_cases(lambda case: case.k > 1)
def test_slices_are_refused_by_the_name_of_the_first(schedule: Schedule) -> None:
    first = next(op for op in schedule.table.ops() if op.slice or op.kind not in "FBIW")
    with pytest.raises(ShapeError, match=rf"^{first} on device 0 cannot be written") as refusal:
        torch_csv.dumps(schedule)
    assert "text lanes or JSON" in refusal.value.hint
