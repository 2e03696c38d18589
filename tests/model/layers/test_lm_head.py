"""The loss of some tokens at a time is the loss, and so are its gradients."""

from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from model.samples import EXACT, random_weights, relative
from penstock.arch.layers import lm_head as head_record
from penstock.data.batch import IGNORE
from penstock.model.layers import lm_head as head_module
from penstock.model.layers.lm_head import head_loss, head_loss_backward
from penstock.model.layers.views import Matrix
from penstock.model.stages.weights import Weights

pytestmark = [
    pytest.mark.torch,
    # some processors have no products of narrow types: torch says so and takes the long way
    pytest.mark.filterwarnings("ignore:mkldnn_matmul failed"),
]

TOKENS, HIDDEN, WORDS = 6, 5, 23
SCALE = 0.25


def _labels(ignored: int = 2) -> Tensor:
    labels = torch.randint(WORDS, (TOKENS,))
    labels[:ignored] = IGNORE
    return labels


class Head(NamedTuple):
    """The head's weights and their gradient."""

    weight: Tensor
    gradient: Tensor


def _head(dtype: torch.dtype = torch.float64) -> tuple[Weights, Head]:
    weights = random_weights({"lm_head.weight": (WORDS, HIDDEN)}, dtype)
    flat = weights.value, weights.grad
    return weights, Head(*(buffer.view(WORDS, HIDDEN) for buffer in flat))


def _matrix(weight: Tensor) -> Matrix:
    return Matrix(weight, None, 0)


def _ours(head: Head, x: Tensor, labels: Tensor, at_a_time: int) -> tuple[Tensor, Tensor]:
    """Loss, and the gradient of the input, which takes its place."""
    d = x.clone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head_record, "LOGITS_AT_A_TIME", at_a_time)
        loss = head_loss_backward(*map(_matrix, head), d, labels, SCALE)
        assert torch.equal(head_loss(_matrix(head.weight), x, labels), loss)
    return loss, d


def _plain(head: Head, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, and the gradients of input and head."""
    x, weight = x.double().clone().requires_grad_(), head.weight.double().clone().requires_grad_()
    loss = functional.cross_entropy(x @ weight.t(), labels, ignore_index=IGNORE, reduction="sum")
    dx, dw = torch.autograd.grad(loss * SCALE, (x, weight))
    return loss.detach(), dx, dw


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 2 * TOKENS * WORDS), st.integers(0, TOKENS - 1), st.integers(0, 2**20))
def test_loss_and_gradients_are_those_of_autograd_however_many_logits_fit(
    at_a_time: int, ignored: int, seed: int
) -> None:
    torch.manual_seed(seed)
    (weights, head), labels = _head(), _labels(ignored)
    x = torch.randn(TOKENS, HIDDEN, dtype=torch.float64)
    found, dx = _ours(head, x, labels, at_a_time)
    loss, right_dx, right_dw = _plain(head, x, labels)
    assert relative(found, loss) <= EXACT
    assert relative(dx, right_dx) <= EXACT
    assert relative(weights.grad.view(WORDS, HIDDEN), right_dw) <= EXACT


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 5e-2)])
def test_shorter_types_lose_only_their_own_roundings(dtype: torch.dtype, bound: float) -> None:
    torch.manual_seed(3)
    (weights, head), labels = _head(dtype), _labels()
    x = torch.randn(TOKENS, HIDDEN, dtype=dtype)
    found, dx = _ours(head, x, labels, 60)
    loss, right_dx, right_dw = _plain(head, x, labels)
    assert found.dtype == torch.float64
    assert relative(found, loss) <= bound
    assert relative(dx, right_dx) <= bound
    assert relative(weights.grad.view(WORDS, HIDDEN), right_dw) <= bound


def test_labels_that_do_not_count_leave_no_trace() -> None:
    (weights, head), labels = _head(), torch.full((TOKENS,), IGNORE)
    found, dx = _ours(head, torch.randn(TOKENS, HIDDEN, dtype=torch.float64), labels, 50)
    assert float(found) == 0.0
    assert dx.abs().max() == 0
    assert weights.grad.abs().max() == 0


def test_no_more_logits_are_there_at_a_time_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    plain = head_module.logits_to_gradient

    def spy(logits: Tensor, labels: Tensor, losses: Tensor, scale: float) -> Tensor:
        sizes.append(logits.numel())
        return plain(logits, labels, losses, scale)

    monkeypatch.setattr(head_module, "logits_to_gradient", spy)
    (_, head), labels = _head(), _labels()
    _ours(head, torch.randn(TOKENS, HIDDEN, dtype=torch.float64), labels, 5 * WORDS)
    assert sizes == [3 * WORDS, 3 * WORDS]


def test_large_logits_overflow_nothing() -> None:
    (_, head), labels = _head(torch.float32), _labels(0)
    x = torch.full((TOKENS, HIDDEN), 1e4)
    found, dx = _ours(head, x, labels, 40)
    assert torch.isfinite(found)
    assert torch.isfinite(dx).all()
