"""Groups of ranks that a step plan may have, what is refused, and what each rank gets."""

from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch

from penstock.arch.cell_shape import CellShape
from penstock.data.batch import Microbatch
from penstock.errors import RunError, ShapeError
from penstock.model.attention.piece import Piece
from penstock.model.parallel.cell import Cell
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.program.token_groups import GroupPlace, TokenGroup, place_in, sliced_groups
from penstock.run.step.batch_pieces import own_pieces
from penstock.schedules import build
from penstock.verify.scale import CPU

pytestmark = pytest.mark.torch

MODEL = replace(CPU.model, layers=2)
MIXED = (TokenGroup(2, 6), TokenGroup(1, 3))


def plan(*groups: tuple[TokenGroup, ...], cell: CellShape | None = None, rows: int = 1) -> StepPlan:
    schedule = build("gpipe", devices=1, microbatches=len(groups))
    layout = Layout.of(MODEL, schedule, 20, cell=cell or CellShape(ulysses=4))
    return StepPlan(layout, schedule, ((9,),) * len(groups), rows, groups)


def test_each_rank_has_the_tokens_of_its_group_and_the_last_one_none() -> None:
    assert [place_in(MIXED, rank) for rank in range(4)] == [
        GroupPlace(2, range(6)),
        GroupPlace(2, range(6)),
        GroupPlace(1, range(6, 9)),
        GroupPlace(1, range(9, 9)),
    ]


def test_plans_with_other_groups_have_another_signature() -> None:
    signatures = {plan(MIXED).signature, plan((TokenGroup(4, 9),)).signature}
    assert len(signatures) == 2


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ((TokenGroup(1, 3), TokenGroup(2, 6)), "groups of 1, 2 ranks, but 4 ranks exchange"),
        ((TokenGroup(3, 9),), "groups of 3 ranks"),
        ((TokenGroup(4, 6), TokenGroup(1, 3)), "groups of 4, 1 ranks"),
        ((TokenGroup(2, 6),), "have 6 tokens, but it has 9"),
        ((TokenGroup(2, 9), TokenGroup(1, 0)), "have 9 tokens, but it has 9"),
    ],
)
def test_groups_that_cannot_be_are_refused(groups: tuple[TokenGroup, ...], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        plan(groups)


def sliced(*lengths: int) -> StepPlan:
    schedule = build("terapipe", devices=1, microbatches=1, slices=len(lengths))
    layout = Layout.of(MODEL, schedule, 20, cell=CellShape(ulysses=4))
    return StepPlan(layout, schedule, (lengths,), 1, (MIXED,))


def test_what_cannot_be_beside_groups_is_refused() -> None:
    with pytest.raises(ShapeError, match="2 sequences lie side by side"):
        plan(MIXED, rows=2)
    with pytest.raises(ShapeError, match="have 4, 3, 2 tokens, but those of its groups have 3, 3,"):
        sliced(4, 3, 2)


class Place(NamedTuple):
    """A rank in a group, where nobody talks."""

    index: int
    size: int


def pieces_of_rank(rank: int, ring: int = 0) -> list[Piece]:
    """What a rank of four has of nine tokens in groups of two and one, in two slices, where two
    rings pass keys round."""
    schedule = build("terapipe", devices=1, microbatches=1, slices=2)
    layout = Layout.of(MODEL, schedule, 20, cell=CellShape(ulysses=4, ring=2))
    groups = (TokenGroup(2, 6), TokenGroup(1, 3))
    grouped = StepPlan(layout, schedule, (sliced_groups(groups, 2),), 1, (groups,))
    tokens = torch.arange(9)[None]
    batch = [Microbatch(tokens, tokens, ((0, 2, 6),))]
    cell: Any = Cell(ulysses=Place(rank, 4), ring=Place(ring, 2))  # type: ignore[arg-type]
    sharers: Any = {1: None, 2: Place(rank % 2, 2)}
    return own_pieces(grouped, batch, 9, torch.device("cpu"), cell, sharers)


def test_every_token_is_in_one_slice_of_one_rank() -> None:
    found: list[int] = []
    for rank, ring in product(range(4), range(2)):
        pieces = pieces_of_rank(rank, ring)
        assert [(each.slice, each.slices) for each in pieces] == [(0, 2), (1, 2)]
        found += [token for each in pieces for token in each.tokens.flatten().tolist()]
    assert sorted(found) == [*range(9)]


def test_a_group_is_a_sequence_of_its_own_with_slices_of_its_own() -> None:
    first, second = pieces_of_rank(2)
    assert (first.start, first.end, second.start, second.end) == (0, 1, 1, 3)
    assert (first.length, first.documents) == (3, ((0,),))
    assert pieces_of_rank(0)[1].documents == ((0, 2),)
    assert [each.length for each in pieces_of_rank(3)] == [0, 0]


def test_a_group_that_begins_inside_a_document_is_refused() -> None:
    alone = plan((TokenGroup(1, 6),) + (TokenGroup(1, 3),), cell=CellShape(ulysses=2))
    tokens = torch.zeros(1, 9, dtype=torch.int64)
    batch = [Microbatch(tokens, tokens, ((0, 5),))]
    cell = Cell(ulysses=Place(1, 2))  # type: ignore[arg-type]
    with pytest.raises(RunError, match="begins at token 6 of microbatch 0, in the middle"):
        own_pieces(alone, batch, 9, torch.device("cpu"), cell, {})
