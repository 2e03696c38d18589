"""Layers with a sliding window: pairs counted one by one, FLOPs and messages that follow."""

from dataclasses import replace
from fractions import Fraction

import pytest

from loops import each
from penstock.arch.cell_shape import CellShape
from penstock.arch.config import ModelConfig
from penstock.arch.presets import MODELS, model
from penstock.cost.cell_workload import CellWorkload
from penstock.cost.hardware import HARDWARE
from penstock.cost.transformer import TransformerCost
from penstock.cost.workload import Workload
from penstock.schedules import build

WINDOWED = ModelConfig(6, 16, 24, 4, 2, 4, 40, window=5, window_pattern=(True, True, False))
LENGTHS = (7, 4, 9)


def half_pairs(query: int, window: int | None) -> int:
    """A query has half a pair with itself while it sees all keys before it."""
    return 2 * query + 1 if window is None or query < window else 2 * window


def test_every_query_of_every_layer_is_counted() -> None:
    schedule = build("seq1f1b", devices=2, microbatches=1, slices=3)
    workload = Workload.of(schedule.shape, WINDOWED, LENGTHS)
    found = workload.work(schedule)
    ends = (7, 11, 20)
    for row, op in enumerate(schedule.table.ops()):
        layers = range(3 * op.stage, 3 * op.stage + 3)
        queries = range(ends[op.slice] - LENGTHS[op.slice], ends[op.slice])
        doubled = sum(
            half_pairs(query, WINDOWED.attention_rule(layer).window)
            for layer in layers
            for query in queries
        )
        flops = WINDOWED.pair_flops * doubled // 2
        forward, backward = (flops, 0) if op.kind == "F" else (0, 2 * flops)
        assert (int(found.attention[row]), int(found.attention_backward[row])) == (
            forward,
            backward,
        )


def test_a_window_longer_than_the_sequence_costs_nothing_less() -> None:
    schedule = build("seq1f1b", devices=2, microbatches=2, slices=3)
    plain, wide = (replace(WINDOWED, window=window) for window in (None, 20))
    costs = [
        Workload.of(schedule.shape, config, LENGTHS).work(schedule) for config in (plain, wide)
    ]
    assert all((a == b).all() for a, b in zip(*costs))


@pytest.mark.parametrize("cell", [CellShape(ring=2), CellShape(ulysses=2), CellShape(tensor=2)])
def test_ranks_of_a_cell_have_all_pairs_together(cell: CellShape) -> None:
    schedule = build("seq1f1b", devices=2, microbatches=1, slices=3)
    whole = Workload.of(schedule.shape, WINDOWED, LENGTHS).work(schedule)
    parts = [
        CellWorkload(WINDOWED, (LENGTHS,), (3, 3), cell, place).work(schedule)
        for place in cell.places()
    ]
    assert (sum(part.attention for part in parts) == whole.attention).all()


def test_long_sequences_are_cheaper_by_what_windows_hide() -> None:
    """16 of 128K tokens: of 48 layers 40 see 1,024 keys."""
    schedule = build("1f1b", devices=4, microbatches=1)
    found = TransformerCost.of(schedule.shape, model("gemma3-12b"), HARDWARE["h200"], [131072])
    work = found.workload.work(schedule)
    doubled = 8 * 131072**2 + 40 * (2 * 131072 * 1024 - 1024**2)
    assert int(work.attention.sum()) == 4 * 4096 * doubled // 2


@each("name", [name for name, config in MODELS.items() if config.window])
def test_slices_of_equal_flops_grow_less_where_windows_are(name: str) -> None:
    config = model(name)
    linear, attention = config.growing_flops(10**6)
    full = config.layers - config.windowed(range(config.layers))
    assert attention == full * config.pair_flops
    assert linear - config.flops_per_token == (
        Fraction(config.windowed(range(config.layers)) * config.pair_flops) * (config.window or 0)
    )
