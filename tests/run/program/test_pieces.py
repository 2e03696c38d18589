"""A batch becomes the units of a plan, or is refused with the place of what is wrong."""

import pytest
import torch

from penstock.arch.config import ModelConfig
from penstock.data.batch import Microbatch
from penstock.errors import RunError
from penstock.run.program.layout import Layout
from penstock.run.program.pieces import cut_batch
from penstock.run.program.step_plan import StepPlan
from penstock.schedules import build
from run.jobs import CPU, batch_of

pytestmark = pytest.mark.torch

MODEL = ModelConfig(2, 8, 16, 2, 1, 4, 30)
SCHEDULE = build("seq1f1b", devices=2, microbatches=3, slices=2)
PLAN = StepPlan(Layout.of(MODEL, SCHEDULE, 8), SCHEDULE, ((5, 3),) * 3, rows=2)


def test_pieces_are_numbered_as_the_schedule_numbers_its_units() -> None:
    pieces = cut_batch(PLAN, batch_of(PLAN), scale=0.5, device=CPU)
    assert [(p.mb, p.slice) for p in pieces] == [(mb, s) for mb in range(3) for s in range(2)]
    assert [(p.start, p.end) for p in pieces[:2]] == [(0, 5), (5, 8)]
    assert {p.scale for p in pieces} == {0.5}


def test_another_number_of_microbatches_is_refused() -> None:
    with pytest.raises(RunError, match="a batch of 2 microbatches for a plan of 3"):
        cut_batch(PLAN, batch_of(PLAN)[:2], scale=1.0, device=CPU)


def test_another_length_or_number_of_rows_is_refused() -> None:
    batch = batch_of(PLAN)
    short = Microbatch(batch[1].tokens[:, :7], batch[1].labels[:, :7], batch[1].documents)
    with pytest.raises(RunError, match=r"microbatch 1 has 2 row\(s\) of 7 tokens.* 2 of 8"):
        cut_batch(PLAN, [batch[0], short, batch[2]], scale=1.0, device=CPU)
    single = Microbatch(batch[0].tokens[:1], batch[0].labels[:1], ((0,),))
    with pytest.raises(RunError, match=r"microbatch 0 has 1 row\(s\)"):
        cut_batch(PLAN, [single, *batch[1:]], scale=1.0, device=CPU)


@pytest.mark.parametrize("word", [30, -1, 10**6])
@pytest.mark.parametrize("what", ["tokens", "labels"])
def test_a_word_outside_the_vocabulary_is_named_with_its_place(what: str, word: int) -> None:
    batch = batch_of(PLAN)
    words = getattr(batch[2], what).clone()
    words[1, 6] = word
    broken = batch[2]._replace(**{what: words})
    name = what.removesuffix("s")
    message = f"{name} {word} of microbatch 2, row 1, position 6 is outside the vocabulary of 30"
    with pytest.raises(RunError, match=message):
        cut_batch(PLAN, [*batch[:2], broken], scale=1.0, device=CPU)


def test_a_token_cannot_be_the_label_that_does_not_count() -> None:
    batch = batch_of(PLAN)
    tokens = torch.full_like(batch[0].tokens, -100)
    with pytest.raises(RunError, match="token -100 of microbatch 0, row 0, position 0"):
        cut_batch(PLAN, [batch[0]._replace(tokens=tokens), *batch[1:]], scale=1.0, device=CPU)
