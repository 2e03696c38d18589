"""Which rank of a cell stands for it: the one that computes most, since the others wait for it."""

from dataclasses import replace
from functools import lru_cache

from penstock.arch.cell_shape import CellPlace, CellShape
from penstock.arch.config import ModelConfig
from penstock.core.homes import stage_column
from penstock.core.schedule import Schedule
from penstock.cost.cell_workload import rank_workload
from penstock.cost.rank_share import RankShare
from penstock.cost.workload import Workload


def busiest_place(workload: Workload, schedule: Schedule, cell: CellShape) -> CellPlace:
    """The place of the rank with most FLOPs. Places of a ring differ by a token or two, so the
    first one stands for all."""
    places = distinct_places(workload.model, frozenset(workload.lengths), cell)
    if len(places) == 1:
        return places[0]
    flops = [_flops(rank_workload(workload, cell, place), schedule) for place in places]
    return places[flops.index(max(flops))]


def _flops(workload: Workload, schedule: Schedule) -> float:
    """Of all rows together, which may be more than whole numbers of 64 bits hold."""
    work, kind, stage = workload.rates(schedule.shape), schedule.table.kind, stage_column(schedule)
    linear = work.linear[kind, stage].astype(float) * workload.tokens[schedule.unit]
    attention = (work.attention + work.attention_backward)[kind, stage].astype(float)
    return float((linear + attention * workload.attended_half_pairs(schedule)).sum())


@lru_cache(maxsize=1024)
def distinct_places(
    model: ModelConfig, microbatches: frozenset[tuple[int, ...]], cell: CellShape
) -> list[CellPlace]:
    """Places whose ranks have different parts of the model or of some slice of a microbatch."""
    lengths = {count for each in microbatches for count in each}
    shared_by, first = cell.tensor * cell.ulysses, RankShare(model, cell)
    uneven = [count for count in lengths if first.tokens(count).attended % shared_by]
    found: dict[object, CellPlace] = {}
    for place, parts in _parts_of_places(model, cell):
        share = RankShare(model, cell, place)
        found.setdefault((parts, *map(share.tokens, uneven)), place)
    return [*found.values()]


@lru_cache(maxsize=256)
def _parts_of_places(
    model: ModelConfig, cell: CellShape
) -> list[tuple[CellPlace, tuple[ModelConfig, ModelConfig]]]:
    """The parts of the model that ranks have, by place; one stands for all of a ring."""
    every = (RankShare(model, cell, place) for place in replace(cell, ring=1).places())
    return [(share.place, (share.part, share.attended)) for share in every]
