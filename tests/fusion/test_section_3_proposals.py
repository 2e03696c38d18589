"""FFN Fusion, section 3, on a model: scores of attentions, what is proposed, and what it loses."""

import pytest
import torch

from fusion.samples import run_model, weights_of
from penstock.arch.config import ModelConfig
from penstock.data import Microbatch
from penstock.data.batch import IGNORE
from penstock.fusion.dependency import measure_dependencies
from penstock.fusion.fusion_plan import FusionPlan, fused_model, without_attention
from penstock.fusion.proposal import (
    FusionRequest,
    attention_scores,
    fused_tensors,
    plan_losses,
    propose,
    removed_attentions,
)
from penstock.fusion.residual_stream import ResidualStream, Sequence, mean_loss
from penstock.verify.oracle import answer

pytestmark = pytest.mark.torch

MODEL = ModelConfig(5, 12, 20, 4, 2, 6, 23, norm_epsilon=1e-2, element_bytes=8)
LENGTH = 11


def microbatch(seed: int) -> Microbatch:
    tokens = torch.randint(23, (1, LENGTH), generator=torch.Generator().manual_seed(seed))
    labels = tokens.roll(-1, 1)
    labels[:, -1] = IGNORE
    return Microbatch(tokens, labels, ((0,),))


BATCH = [microbatch(1), microbatch(2)]
DATA = [*map(Sequence, BATCH)]


@pytest.mark.long
def test_scores_are_the_losses_of_models_without_one_attention() -> None:
    tensors, passes = weights_of(MODEL), list[int]()
    found = attention_scores(ResidualStream(MODEL, tensors, LENGTH), DATA, passes.append)
    whole = answer(MODEL, tensors, BATCH).loss
    for layer, score in found.items():
        left = without_attention(MODEL, [layer])
        own = {name: value for name, value in tensors.items() if name in weights_of(left)}
        assert score == pytest.approx(answer(left, own, BATCH).loss - whole, abs=1e-12)
    assert [*found] == [0, 1, 2, 3, 4]
    assert sum(passes) == 2 * 5


def test_the_attentions_that_cost_least_are_removed() -> None:
    scores = {0: 0.4, 1: 0.02, 3: -0.01, 4: 0.03}
    assert removed_attentions(MODEL, scores, 2) == (1, 3)
    assert removed_attentions(MODEL, scores, 4) == ()
    assert removed_attentions(MODEL, scores, None) == ()
    assert removed_attentions(MODEL, scores, 0) == (0, 1, 3, 4)


def test_a_proposal_follows_from_the_model_that_is_left() -> None:
    tensors = weights_of(MODEL)
    found = propose(MODEL, tensors, DATA, FusionRequest(attentions=1, limit=2.0, multiple=8))
    left = without_attention(MODEL, found.plan.remove)
    right = measure_dependencies(ResidualStream(left, tensors, LENGTH), DATA)
    assert (found.dependencies.matrix == right.matrix).all()
    assert len(found.plan.remove) == 4
    assert found.plan.multiple == 8
    for run in found.plan.fuse:
        assert not left.attending(run)
        assert not left.block(run.stop).attention  # the last one of each run stays
    assert propose(MODEL, tensors, DATA, FusionRequest(attentions=1, limit=0.0)).plan.fuse == ()


def test_losses_are_those_of_the_oracle() -> None:
    """Of the model, of what is left without attentions, and of the fused model."""
    tensors, plan = weights_of(MODEL), FusionPlan((1, 2, 3), (range(1, 3),))
    left = without_attention(MODEL, plan.remove)
    own = {name: value for name, value in tensors.items() if name in weights_of(left)}
    found = plan_losses(MODEL, tensors, plan, DATA)
    fused = answer(fused_model(MODEL, plan), fused_tensors(MODEL, plan, tensors), BATCH)
    right = [answer(MODEL, tensors, BATCH).loss, answer(left, own, BATCH).loss, fused.loss]
    assert [found.given, found.removed, found.fused] == pytest.approx(right, rel=1e-12)
    stream = ResidualStream(left, tensors, LENGTH)
    assert found.reversed == mean_loss(stream, DATA, (0, 2, 1, 3, 4))
    assert found.reversed != found.removed


def test_attentions_of_a_run_model_are_scored_where_they_are() -> None:
    model = run_model((8, 5))
    stream = ResidualStream(model, weights_of(model), LENGTH)
    assert [*attention_scores(stream, DATA, lambda passes: None)] == [0, 3]
