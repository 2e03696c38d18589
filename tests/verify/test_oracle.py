"""The judge is judged: by finite differences, by hand, and by facts that need no computation."""

import ast
from dataclasses import replace
from math import log
from pathlib import Path
from types import ModuleType

import pytest
import torch

from penstock.arch.config import ModelConfig
from penstock.arch.rope_scaling import RopeScaling
from penstock.data.batch import IGNORE, Microbatch
from penstock.errors import ShapeError
from penstock.verify import (
    oracle,
    plain_decoder,
    plain_experts,
    plain_rotary,
    plain_subsampling,
)
from penstock.verify.material import microbatches_of, parameters_of
from penstock.verify.oracle import Answer, Named, answer
from penstock.verify.variants import Batch

pytestmark = pytest.mark.torch

MODEL = ModelConfig(2, 8, 12, 4, 2, 2, 11, qkv_bias=True, qk_norm=True)
BATCH = Batch(2, rows=2, length=10, ignored=(1, 4), documents=((0, 3), (0,), (0, 1, 9)))
STEP = 1e-6


def _microbatches(batch: Batch = BATCH) -> list[Microbatch]:
    return microbatches_of(batch, MODEL.vocabulary)


def _moved(values: Named, direction: Named, step: float) -> Named:
    return {name: value + step * direction[name] for name, value in values.items()}


@pytest.mark.long
@pytest.mark.parametrize(
    "tied",
    [pytest.param(False, id="untied", marks=pytest.mark.matrix), pytest.param(True, id="tied")],
)
def test_every_gradient_is_the_slope_of_the_loss(tied: bool) -> None:
    model = replace(MODEL, tied=tied)
    values = parameters_of(model, torch.float64)
    right = answer(model, values, _microbatches())
    for name, gradient in right.gradients.items():
        direction = {other: torch.zeros_like(value) for other, value in values.items()}
        direction[name] = torch.randn(
            gradient.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
        )
        up, down = (
            answer(model, _moved(values, direction, step), _microbatches()).loss
            for step in (STEP, -STEP)
        )
        slope = float((gradient * direction[name]).sum())
        assert (up - down) / (2 * STEP) == pytest.approx(slope, rel=1e-5, abs=1e-8), name


def test_equal_logits_lose_the_logarithm_of_the_vocabulary() -> None:
    values = parameters_of(MODEL, torch.float64)
    values["lm_head.weight"].zero_()
    assert answer(MODEL, values, _microbatches()).loss == pytest.approx(log(MODEL.vocabulary))


def _one_token_at_a_time(documents: tuple[int, ...]) -> Answer:
    """Eight tokens with one label that counts, at the end."""
    tokens = torch.arange(8).unsqueeze(0)
    labels = torch.full_like(tokens, IGNORE)
    labels[0, -1] = 3
    values = parameters_of(MODEL, torch.float64)
    return answer(MODEL, values, [Microbatch(tokens, labels, (documents,))])


def test_a_token_sees_all_of_its_own_document_and_nothing_of_another() -> None:
    for first in (0, 2, 5):
        starts = (0, first) if first else (0,)
        rows = _one_token_at_a_time(starts).gradients["model.embed_tokens.weight"].norm(dim=1)
        assert [bool(norm) for norm in rows[:8]] == [token >= first for token in range(8)]


def test_a_later_token_is_not_seen() -> None:
    tokens = torch.arange(8).unsqueeze(0)
    labels = torch.full_like(tokens, IGNORE)
    labels[0, 4] = 3
    values = parameters_of(MODEL, torch.float64)
    right = answer(MODEL, values, [Microbatch(tokens, labels, ((0,),))])
    rows = right.gradients["model.embed_tokens.weight"].norm(dim=1)
    assert [bool(norm) for norm in rows[:8]] == [token <= 4 for token in range(8)]


def test_the_loss_is_a_mean_over_labels_and_not_over_microbatches() -> None:
    values = parameters_of(MODEL, torch.float64)
    each = [answer(MODEL, values, [microbatch]) for microbatch in _microbatches()]
    counts = [microbatch.valid for microbatch in _microbatches()]
    assert len(set(counts)) == 2
    weighted = sum(one.loss * count for one, count in zip(each, counts)) / sum(counts)
    assert answer(MODEL, values, _microbatches()).loss == pytest.approx(weighted, rel=1e-14)


def test_a_batch_without_labels_is_refused() -> None:
    with pytest.raises(ShapeError, match="no label"):
        answer(MODEL, parameters_of(MODEL, torch.float64), _microbatches(Batch(1, ignored=(24,))))


def test_a_model_that_it_does_not_know_is_refused() -> None:
    scaled = replace(MODEL, rope_scaling=RopeScaling("yarn", 2.0, 8))
    with pytest.raises(ShapeError, match="no rope scaling yarn"):
        answer(scaled, parameters_of(MODEL, torch.float64), _microbatches())
    with pytest.raises(ShapeError, match="gated MLP"):
        answer(replace(MODEL, gated=False), parameters_of(MODEL, torch.float64), _microbatches())


def test_it_borrows_nothing_from_what_it_judges() -> None:
    assert _ours(oracle) == {
        "penstock.arch.config",
        "penstock.data.batch",
        "penstock.errors",
        "penstock.verify.plain_decoder",
        "penstock.verify.plain_experts",
        "penstock.verify.plain_subsampling",
    }
    names = "penstock.arch.layers.expert_mlp"
    assert _ours(plain_decoder) == {
        "penstock.arch.attention_rule",
        "penstock.arch.config",
        "penstock.errors",
        "penstock.verify.plain_experts",
        "penstock.verify.plain_rotary",
        names,
    }
    assert _ours(plain_experts) == {"penstock.arch.config", "penstock.arch.mixture", names}
    assert _ours(plain_rotary) == {"penstock.arch.config", "penstock.errors"}
    assert _ours(plain_subsampling) == {
        "penstock.arch.attention_rule",
        "penstock.arch.config",
        "penstock.arch.draws",  # what is drawn at random belongs to the model
        "penstock.arch.subsampling",
        "penstock.data.batch",
        "penstock.verify.plain_decoder",
    }


def _ours(module: ModuleType) -> set[str]:
    """The modules of this project that a module imports."""
    nodes = ast.walk(ast.parse(Path(str(module.__file__)).read_text()))
    found = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name for name in found if name.startswith("penstock")}
