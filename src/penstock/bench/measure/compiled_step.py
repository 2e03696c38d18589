"""A training step of the compiled model: loss, gradients, their norm, AdamW, and back to 16 bits.

As for the model, every part is PyTorch's own and as fast as PyTorch has it: the loss is taken over
some tokens at a time, because the logits of a long sequence would not fit, and all that is done for
every parameter is done for all at once.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from penstock.arch.config import ModelConfig
from penstock.bench.measure.compiled_model import CallBlock, CompiledDecoder, keep_activations
from penstock.model.layers.rope import rope_tables
from penstock.run.step.optimizer import AdamW

LOSS_TOKENS = 4096
"""Tokens whose logits are made at a time."""

ADAM = AdamW()

LossFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Hidden states, head and labels to the sum of the losses."""


class Making(NamedTuple):
    """What makes a plain model fast, and where it runs."""

    device: torch.device
    dtype: torch.dtype
    compile_block: Callable[[nn.Module], Any]
    compile_loss: Callable[[LossFunction], LossFunction]
    attention: Callable[[], AbstractContextManager[Any]]
    """Chooses the kernel of attention."""
    fused: bool | None
    """Whether AdamW is one kernel."""


def compiled_making(device: torch.device) -> Making:
    """All that PyTorch has for a GPU."""
    return Making(device, torch.bfloat16, nn.Module.compile, torch.compile, _cudnn, True)


def plain_making(device: torch.device, dtype: torch.dtype) -> Making:
    """The same arithmetic without a compiler, for any device."""
    return Making(device, dtype, lambda block: None, lambda loss: loss, nullcontext, None)


class StepResult(NamedTuple):
    """What a step came to, still on the device."""

    losses: list[Tensor]
    """Parts of the mean loss."""
    norm: Tensor
    """Of the gradient, before clipping."""


class CompiledStep:
    """A model with its optimizer and one sequence, which it is trained on again and again."""

    def __init__(
        self,
        config: ModelConfig,
        words: Tensor,
        making: Making,
        *,
        call: CallBlock = keep_activations,
        adam: AdamW = ADAM,
        loss_tokens: int = LOSS_TOKENS,
    ) -> None:
        self.making, self.clip = making, adam.clip
        self.words = words.to(making.device)
        self.tokens = words.shape[1] - 1
        with torch.device(making.device):
            self.model = CompiledDecoder(config, call).to(making.dtype)
        cos, sin = rope_tables(config, range(self.tokens), making.dtype, making.device)
        self.tables = cos[None, :, None], sin[None, :, None]
        for block in self.model.blocks:
            making.compile_block(block)
        self.loss = making.compile_loss(loss_of_some)
        self.parts = max(1, self.tokens // loss_tokens)
        self.values: list[Tensor] = list(self.model.parameters())
        self.main = [value.detach().float() for value in self.values]
        self.gradients = [torch.zeros_like(main) for main in self.main]
        for main, gradient in zip(self.main, self.gradients):
            main.grad = gradient
        self.optimizer = torch.optim.AdamW(
            self.main,
            lr=1e-4,
            betas=adam.betas,
            eps=adam.epsilon,
            weight_decay=adam.weight_decay,
            fused=making.fused,
        )

    def step(self) -> StepResult:
        """Train once on the whole sequence."""
        with self.making.attention():
            losses = self._gradients()
        norm = self._update()
        for value in self.values:
            value.grad = None
        return StepResult(losses, norm)

    def _gradients(self) -> list[Tensor]:
        """Each part of the loss goes back to the hidden states at once, all of them together
        through the model."""
        hidden = self.model(self.words[:, :-1], *self.tables)[0]
        labels, head = self.words[0, 1:], self.model.head.weight
        apart = hidden.detach().requires_grad_()
        losses = []
        for some, wanted in zip(apart.chunk(self.parts), labels.chunk(self.parts)):
            loss = self.loss(some, head, wanted) / self.tokens
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        hidden.backward(apart.grad)
        return losses

    @torch.no_grad()
    def _update(self) -> Tensor:
        torch._foreach_copy_(self.gradients, [_gradient_of(value) for value in self.values])
        norm: Tensor = nn.utils.get_total_norm(self.gradients)
        torch._foreach_mul_(self.gradients, torch.clamp(self.clip / norm, max=1.0))
        self.optimizer.step()
        torch._foreach_copy_(self.values, self.main)
        return norm


def loss_of_some(hidden: Tensor, head: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the logits in 32 bits, summed."""
    return functional.cross_entropy((hidden @ head.t()).float(), labels, reduction="sum")


def _gradient_of(value: Tensor) -> Tensor:
    assert value.grad is not None
    return value.grad


def _cudnn() -> AbstractContextManager[Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel([SDPBackend.CUDNN_ATTENTION])
