"""What a rank of a cell holds at its peak is what is predicted for it, within 2 %."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from penstock.arch.cell_shape import CellPlace, CellShape
from penstock.cost.cell_workload import rank_workload
from penstock.cost.workload import Workload
from penstock.plan.memory import step_peaks
from penstock.run.comm.grid import Grid
from penstock.run.launch.worker_pool import Crew
from penstock.run.program.step_plan import StepPlan
from run.lone_rank import lone_peak
from run.peak_jobs import peak_without_waits
from run.plans import heavy_cells, wide_and_normed

pytestmark = pytest.mark.torch

CLOSE = 0.02

SCATTERED, REPLICATED = CellShape(tensor=2), CellShape(tensor=2, norms="replicated")
ULYSSES, RING = CellShape(ulysses=2), CellShape(ring=2)
BOTH = CellShape(tensor=2, ulysses=2)
NAMES = {
    SCATTERED: "tensor, scattered norms",
    REPLICATED: "tensor, replicated norms",
    ULYSSES: "ulysses",
    RING: "ring",
    BOTH: "tensor x ulysses",
}


def _case(cell: CellShape, name: str, **options: Any) -> tuple[str, Callable[[], StepPlan]]:
    told = ", ".join(key if value is True else f"{key} {value}" for key, value in options.items())
    label = f"{name}{', ' if told else ''}{told} on {NAMES[cell]}".replace("_", " ")
    return label, lambda: heavy_cells(name, cell, devices=4 // cell.ranks, **options)


SAMPLE = dict(
    (
        _case(SCATTERED, "1f1b", is_tied=True),
        _case(ULYSSES, "seq1f1b", microbatches=2, slices=3),
        _case(RING, "seq1f1b", microbatches=2, slices=2, again_all=True),
        _case(BOTH, "zb-v"),
        _case(ULYSSES, "slimpipe-exchange", microbatches=2, slices=4),
    )
)
OTHERS = dict(
    (
        _case(SCATTERED, "seq1f1b", microbatches=2, slices=2),
        _case(SCATTERED, "zb-h1"),
        _case(SCATTERED, "interleaved", again_all=True),
        _case(REPLICATED, "1f1b", again_all=True),
        _case(REPLICATED, "seq1f1b", microbatches=2, slices=3, is_tied=True),
        _case(REPLICATED, "zb-v"),
        _case(REPLICATED, "interleaved"),
        _case(ULYSSES, "1f1b", again_all=True, is_tied=True),
        _case(ULYSSES, "zb-h1", is_tied=True),
        _case(ULYSSES, "interleaved"),
        _case(RING, "1f1b"),
        _case(RING, "seq1f1b", microbatches=2, slices=3, is_tied=True),
        _case(RING, "zb-v", is_tied=True),
        _case(RING, "seq1f1b-zb", microbatches=2, slices=4),
        _case(BOTH, "1f1b", is_tied=True),
        _case(BOTH, "seq1f1b", microbatches=2, slices=2, again_all=True),
        _case(BOTH, "interleaved"),
        _case(ULYSSES, "slimpipe-vocab", microbatches=2, slices=4),
        _case(RING, "vocab-seq1f1b", microbatches=3, slices=4),
        _case(SCATTERED, "slimpipe-exchange", microbatches=2, slices=4),
    )
)


def _with_matrix() -> Iterable[Any]:
    yield from (pytest.param(plan, id=label) for label, plan in SAMPLE.items())
    for label, plan in OTHERS.items():
        yield pytest.param(plan, id=label, marks=pytest.mark.matrix)


def _predicted(plan: StepPlan, rank: int) -> int:
    cell = plan.layout.cell
    here = Grid(1, plan.layout.devices, cell.ring, cell.ulysses, cell.tensor).coordinates(rank)
    whole = Workload(plan.layout.model, plan.lengths, tuple(map(len, plan.layout.split)))
    place = CellPlace(here["tensor"], here["ulysses"], here["ring"])
    return step_peaks(plan.schedule, rank_workload(whole, cell, place), plan.rows)[here["device"]]


@pytest.mark.parametrize("make", [*_with_matrix()])
def test_every_rank_of_a_cell_holds_what_is_predicted(
    ranks: Crew, make: Callable[[], StepPlan]
) -> None:
    plan = make()
    measured = ranks.run(peak_without_waits, plan)
    predicted = [_predicted(plan, rank) for rank in range(4)]
    assert predicted == [pytest.approx(peak, rel=CLOSE) for peak in measured]


SHARES: dict[str, tuple[str, CellShape, dict[str, Any]]] = {
    "vocab-1f1b": ("vocab-1f1b", SCATTERED, {}),
    "vocab-1f1b, tied and replicated": ("vocab-1f1b", REPLICATED, {"is_tied": True}),
    "vocab-seq1f1b": ("vocab-seq1f1b", SCATTERED, {"microbatches": 3, "slices": 4}),
    "slimpipe-vocab, replicated": ("slimpipe-vocab", REPLICATED, {"microbatches": 2, "slices": 4}),
    "interlaced": ("interlaced", SCATTERED, {"microbatches": 4}),
    "vocab-1f1b, recomputed": ("vocab-1f1b", ULYSSES, {"again_all": True}),
}


@pytest.mark.matrix
@pytest.mark.parametrize("name", SHARES)
def test_parts_of_all_tokens_are_predicted_until_they_are_read(ranks: Crew, name: str) -> None:
    """A part goes when the sum is there, which a thread sees sooner or later; where matrices are
    shared, a rank keeps its tokens of it."""
    schedule, cell, sizes = SHARES[name]
    plan = heavy_cells(schedule, cell, devices=2, **sizes)
    measured = ranks.run(peak_without_waits, plan)
    for rank, peak in enumerate(measured):
        assert 0.96 * peak < _predicted(plan, rank) < 1.06 * peak


LARGER = {
    "ring of 4": (CellShape(ring=4), {}),
    "ring of 3 with uneven slices": (CellShape(ring=3), {"slices": 3, "length": 250}),
    "ring x ulysses": (CellShape(ulysses=2, ring=2), {"slices": 2}),
    "ring x ulysses x tensor": (CellShape(tensor=2, ulysses=2, ring=2), {}),
    "tensor of 4 with replicated norms": (CellShape(tensor=4, norms="replicated"), {"slices": 2}),
    "ulysses of 3, which shares heads unevenly": (CellShape(ulysses=3), {}),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LARGER)
def test_a_rank_by_itself_holds_what_is_predicted_in_larger_cells(name: str) -> None:
    cell, sizes = LARGER[name]
    schedule = "seq1f1b" if "slices" in sizes else "1f1b"
    plan = heavy_cells(schedule, cell, devices=1, **{"microbatches": 2} | sizes)
    for rank in range(cell.ranks):
        assert _predicted(plan, rank) == pytest.approx(lone_peak(plan, rank), rel=CLOSE), rank


def test_norms_of_heads_are_predicted_where_heads_are_exchanged() -> None:
    plan = wide_and_normed(heavy_cells("1f1b", ULYSSES, devices=1, microbatches=2))
    assert _predicted(plan, 0) == pytest.approx(lone_peak(plan, 0), rel=CLOSE)


def test_a_rank_by_itself_holds_what_it_holds_among_others(ranks: Crew) -> None:
    plan = SAMPLE[next(label for label in SAMPLE if "ring" in label)]()
    together = ranks.run(peak_without_waits, plan)
    assert [lone_peak(plan, rank) for rank in range(4)] == [
        pytest.approx(peak, rel=0.001) for peak in together
    ]
