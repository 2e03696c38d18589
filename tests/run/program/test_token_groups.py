"""Groups of ranks that a step plan may have, and what is refused."""

from dataclasses import replace

import pytest

from penstock.arch.cell_shape import CellShape
from penstock.errors import RunError, ShapeError
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.program.token_groups import GroupPlace, TokenGroup, place_in
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


def test_what_cannot_be_beside_groups_is_refused() -> None:
    with pytest.raises(ShapeError, match="2 ranks pass keys and values round"):
        plan((TokenGroup(2, 9),), cell=CellShape(ulysses=2, ring=2))
    with pytest.raises(ShapeError, match="2 sequences lie side by side"):
        plan(MIXED, rows=2)
    sliced = build("terapipe", devices=1, microbatches=1, slices=3)
    layout = Layout.of(MODEL, sliced, 20, cell=CellShape(ulysses=4))
    with pytest.raises(ShapeError, match="microbatch 0 is cut into 3 slices, but"):
        StepPlan(layout, sliced, ((3, 3, 3),), 1, (MIXED,))


def test_a_group_that_begins_inside_a_document_is_refused() -> None:
    import torch

    from penstock.data.batch import Microbatch
    from penstock.model.parallel.cell import Cell
    from penstock.run.step.batch_pieces import own_pieces

    alone = plan((TokenGroup(1, 6),) + (TokenGroup(1, 3),), cell=CellShape(ulysses=2))
    tokens = torch.zeros(1, 9, dtype=torch.int64)

    class Second:
        size, index = 2, 1

    batch = [Microbatch(tokens, tokens, ((0, 5),))]
    cell = Cell(ulysses=Second())  # type: ignore[arg-type]
    with pytest.raises(RunError, match="begins at token 6 of microbatch 0, in the middle"):
        own_pieces(alone, batch, 9, torch.device("cpu"), cell, {})
