"""Selection, upsampling and bypass: the worked example of the paper's specification with ==, and
gradients against finite differences and autograd."""

from math import atanh, isclose

import pytest
import torch
from torch import Tensor

from penstock.model.layers.score_balance import (
    BALANCER_SCALE,
    ROOT_BOUNDS,
    balanced_gradient,
    limited_gradient,
    mean_bounds,
)
from penstock.model.layers.subsample import (
    score_gradient,
    select,
    select_positive,
    upsample,
    upsample_backward,
)
from penstock.verify.plain_subsampling import plain_selection

pytestmark = pytest.mark.torch

SCORES = torch.tensor([[0.9, -0.3, 2.0, 0.2, -1.0, 0.5, 1.4, -0.1]], dtype=torch.float64)
"""Of the worked example: 8 tokens, of which 4 are kept."""


def _close(found: Tensor, wanted: list[float]) -> bool:
    return torch.allclose(found, torch.tensor(wanted, dtype=found.dtype), rtol=0, atol=1e-15)


def test_section_4_weights_of_those_that_missed_are_taken_off() -> None:
    kept, weights, rivals = select(SCORES, 4, flip=False)
    assert kept.tolist() == [[0, 2, 5, 6]]
    assert _close(weights, [[0.9, 0.8, 0.5, 1.0]])
    assert rivals.tolist() == [[1, 3, 4, 7]]


def test_section_4_turned_round_the_last_is_met_first() -> None:
    kept, weights, rivals = select(SCORES, 4, flip=True)
    assert kept.tolist() == [[0, 2, 5, 6]]
    assert _close(weights, [[0.9, 1.0, 0.3, 1.0]])
    assert rivals.tolist() == [[7, 4, 3, 1]]


def test_section_4_inference_keeps_what_has_a_score_above_0() -> None:
    kept, weights, _ = select_positive(SCORES)
    assert kept.tolist() == [[0, 2, 3, 5, 6]]
    assert weights.tolist() == [[0.9, 1.0, 0.2, 0.5, 1.0]]


def test_section_4_upsampling_mixes_kept_tokens_and_leaves_others() -> None:
    x, y = torch.randn(8, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    kept, weights, _ = select(SCORES, 4, flip=False)
    whole, half = (torch.full((3,), c, dtype=torch.float64) for c in (1.0, 0.5))
    z, _ = upsample(x, y, kept, weights, whole)
    assert torch.equal(z[[1, 3, 4, 7]], x[[1, 3, 4, 7]])
    assert torch.equal(z[6], y[3])
    torch.testing.assert_close(z[0], 0.9 * y[0] + 0.1 * x[0])
    torch.testing.assert_close(z[2], 0.8 * y[1] + 0.2 * x[2])
    torch.testing.assert_close(z[5], 0.5 * y[2] + 0.5 * x[5])
    out, _ = upsample(x, y, kept, weights, half)
    torch.testing.assert_close(out, (x + z) / 2)


def test_equal_scores_are_kept_in_their_order() -> None:
    tied = torch.tensor([[0.5, 0.7, 0.5, 0.5, 0.7, 0.5]])
    assert select(tied, 3, flip=False).kept.tolist() == [[0, 1, 4]]
    many = torch.zeros(1, 4000)
    assert select(many, 1000, flip=False).kept.tolist() == [[*range(1000)]]


def test_padding_is_kept_only_where_nothing_else_is_left() -> None:
    never = torch.tensor([[False] * 2 + [True] * 6])
    kept, weights, _ = select(SCORES.masked_fill(never, -torch.inf), 4, flip=True)
    assert {0, 1} <= {*kept[0].tolist()}
    assert [w for at, w in zip(kept[0].tolist(), weights[0].tolist()) if at > 1] == [0, 0]


@pytest.mark.parametrize("count", [1, 3, 5, 9])
@pytest.mark.parametrize("flip", [False, True])
def test_a_selection_and_its_gradient_are_those_of_the_text(count: int, flip: bool) -> None:
    scores = torch.randn(2, 9, dtype=torch.float64).requires_grad_()
    found = select(scores.detach(), count, flip=flip)
    plain = [plain_selection(row, count, flip) for row in scores]
    assert found.kept.tolist() == [kept.tolist() for kept, _ in plain]
    right = torch.stack([weights for _, weights in plain])
    torch.testing.assert_close(found.weights, right.detach(), rtol=0, atol=0)
    d = torch.randn_like(right)
    (wanted,) = torch.autograd.grad(right, scores, d)
    torch.testing.assert_close(score_gradient(scores.detach(), found, d), wanted)


def test_section_5_3_upsampling_and_bypass_have_the_gradients_of_finite_differences() -> None:
    kept = torch.tensor([[0, 2, 5], [1, 3, 4]])
    parts = [torch.randn(size, dtype=torch.float64) for size in ((12, 4), (6, 4), (2, 3), (4,))]
    d = torch.randn(12, 4, dtype=torch.float64)

    def loss(x: Tensor, y: Tensor, weights: Tensor, scale: Tensor) -> float:
        return float((upsample(x, y, kept, weights, scale)[0] * d).sum())

    _, saved = upsample(parts[0], parts[1], kept, *parts[2:])
    found = upsample_backward(d, saved, parts[3])
    for number, gradient in enumerate(found):
        way = torch.randn_like(parts[number])
        ends = []
        for step in (1e-6, -1e-6):
            moved = [part + step * way if at == number else part for at, part in enumerate(parts)]
            ends.append(loss(*moved))
        slope = float((gradient.reshape(way.shape) * way).sum())
        assert isclose((ends[0] - ends[1]) / 2e-6, slope, rel_tol=1e-7, abs_tol=1e-7)


def _balancing_loss(scores: Tensor, keep: float) -> Tensor:
    """As the specification writes it."""
    mean, root = scores.mean(), (scores * scores).mean().sqrt()
    ratio = mean / scores.std(unbiased=False)
    low, high = (0.8139535 * atanh(2 * q - 1) for q in (keep - 0.05, keep + 0.05))
    bounded = root.clamp(1.2533, 4 * 1.2533)
    return (ratio - ratio.clamp(low, high)).abs() + (bounded / root).log().abs()


@pytest.mark.parametrize(("scale", "shift"), [(0.3, -0.2), (9.0, 30.0), (2.0, 0.7)])
def test_section_5_3_the_balancer_adds_the_normed_gradient_of_its_loss(
    scale: float, shift: float
) -> None:
    scores = (torch.randn(3, 50, dtype=torch.float64) * scale + shift).requires_grad_()
    d = torch.randn(3, 50, dtype=torch.float64)
    (push,) = torch.autograd.grad(_balancing_loss(scores, 0.64), scores)
    size = (push * push).mean().sqrt().clamp(min=1e-20)
    found = balanced_gradient(d, scores.detach(), 0.64)
    torch.testing.assert_close(found, d + d.abs() * push * (BALANCER_SCALE / size))


def test_the_balancer_is_scale_free_and_adds_nothing_where_there_is_no_gradient() -> None:
    scores, d = torch.randn(1, 40).double() * 0.1, torch.randn(1, 40).double()
    d[0, :7] = 0
    found = balanced_gradient(d, scores, 0.64)
    assert torch.equal(found[0, :7], d[0, :7])
    torch.testing.assert_close(balanced_gradient(1e6 * d, scores, 0.64), 1e6 * found)
    pushed = scores.clone()
    pushed[0, 30:] = -torch.inf  # padding
    other = balanced_gradient(d, pushed, 0.64)
    torch.testing.assert_close(other[0, 30:], d[0, 30:])
    torch.testing.assert_close(other[:, :30], balanced_gradient(d[:, :30], scores[:, :30], 0.64))
    nothing = torch.full_like(scores, -torch.inf)
    assert torch.equal(balanced_gradient(torch.zeros_like(d), nothing, 0.64), torch.zeros_like(d))


def test_scores_within_the_bounds_are_left_alone() -> None:
    scores = torch.randn(1, 4000, dtype=torch.float64)
    scores = (scores - scores.mean()) / scores.std(unbiased=False)
    low, high = mean_bounds(0.64)
    scores = (scores + (low + high) / 2) * ROOT_BOUNDS[0] * 2
    d = torch.randn_like(scores)
    assert torch.equal(balanced_gradient(d, scores, 0.64), d)


def test_a_bypass_out_of_its_range_is_led_back() -> None:
    scale = torch.tensor([0.1, 0.1, 0.5, 1.2, 1.2])
    gradient = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0])
    assert limited_gradient(gradient, scale, 0.2).tolist() == [-1.0, -1.0, 1.0, 1.0, 1.0]


@pytest.mark.long
@pytest.mark.parametrize("start", [3.0, -3.0])
def test_section_5_4_the_share_of_positive_scores_comes_to_what_is_kept(start: float) -> None:
    """Whatever a gradient without a direction is, almost all or almost none being positive before;
    the bounds themselves are a crude inverse of the share."""
    generator = torch.Generator().manual_seed(1)
    centre = torch.randn(8, generator=generator)
    scorer = start * centre / centre.norm()
    optimizer = torch.optim.Adam([scorer.requires_grad_()], lr=0.02)

    def scored(count: int) -> tuple[Tensor, Tensor]:
        x = centre + torch.randn(count, 8, generator=generator)
        return x, (x @ scorer.detach())[None]

    before = float((scored(4000)[1] > 0).float().mean())
    assert before > 0.95 or before < 0.05
    for _ in range(350):
        x, scores = scored(2048)
        d = balanced_gradient(torch.randn(1, 2048, generator=generator), scores, 0.64)
        scorer.grad = d[0] @ x
        optimizer.step()
    after = float((scored(20_000)[1] > 0).float().mean())
    assert abs(after - 0.64) < 0.07
