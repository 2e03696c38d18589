"""Which ranks of a cell differ is found by looking at slices that do not divide alone."""

from dataclasses import replace

import pytest

from penstock.arch.cell_shape import CellPlace, CellShape
from penstock.arch.config import ModelConfig
from penstock.arch.presets import MODELS
from penstock.cost.busiest_place import distinct_places
from penstock.cost.rank_share import RankShare

CELLS = [CellShape(), CellShape(2, 2), CellShape(3, 1, 2), CellShape(4, 3), CellShape(1, 4, 2)]
MICROBATCHES = [((64,),), ((48, 16),), ((33, 31),), ((7, 5), (12,)), ((96, 48), (144,))]


def _looked_at(
    model: ModelConfig, microbatches: tuple[tuple[int, ...], ...], cell: CellShape
) -> list[CellPlace]:
    """The same with all slices of all places."""
    lengths = {count for each in microbatches for count in each}
    found: dict[object, CellPlace] = {}
    for place in replace(cell, ring=1).places():
        share = RankShare(model, cell, place)
        found.setdefault((share.part, share.attended, *map(share.tokens, lengths)), place)
    return [*found.values()]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.text or "one rank")
@pytest.mark.parametrize("microbatches", MICROBATCHES, ids=str)
def test_places_are_those_that_differ(
    microbatches: tuple[tuple[int, ...], ...], cell: CellShape
) -> None:
    for name in ("llama3-8b", "tiny"):
        if cell.tensor * cell.ulysses <= MODELS[name].heads:
            wanted = _looked_at(MODELS[name], microbatches, cell)
            assert distinct_places(MODELS[name], frozenset(microbatches), cell) == wanted
