"""Any torch module as a stage, with its backward left to autograd.

A module that was written for one process knows nothing of slices: it takes the whole sequence at
once, and a schedule that cuts sequences is refused. Everything else works: a full backward is one
pass of autograd, a split one walks its graph (model/stages/split_autograd.py), and a forward that
is to be run again keeps its input and the state of the random numbers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from penstock.errors import RunError
from penstock.model.attention.piece import Piece
from penstock.model.stages.split_autograd import backward_to_input, backward_to_weights
from penstock.model.stages.stage import Backward, Forward

Loss = Callable[[Tensor, Tensor], Tensor]
"""The summed loss of a module's output and the labels [rows, tokens]."""


GraphEnds = tuple[Tensor, Tensor]
"""The ends of what autograd has recorded: the input, and the output or the summed loss."""


class LightSaved(NamedTuple):
    """What a forward keeps that is to be run again."""

    x: Tensor | None
    random: Tensor
    """State of the generators of the host and, for a tensor on a GPU, of that GPU."""
    device_random: Tensor | None


class WholeBackward(NamedTuple):
    """A backward that was put off as a whole: the first stage has no input to take out of it."""

    out: Tensor
    g: Tensor | None


class ModuleStage:
    """A module that maps [rows, tokens, width] to the same; the first one takes token numbers.

    The last one has a `loss`, which makes one number of its output and the labels.
    """

    def __init__(self, module: Module, loss: Loss | None = None) -> None:
        self.module, self.loss = module, loss
        self._scale, self._seed = 0.0, torch.zeros(())

    def views(self, flat: Tensor) -> None:
        """The module owns its parameters: no buffer is looked at."""
        return

    def forward(self, weights: None, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        entry = piece.tokens if x is None else _leaf(x)
        out = self._run(entry, piece)
        return (out if self.loss is None else None), (entry, out), None

    def forward_light(self, weights: None, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        on_device = x is not None and x.is_cuda
        state = torch.cuda.get_rng_state(x.device) if x is not None and on_device else None
        light = LightSaved(x, torch.get_rng_state(), state)
        with torch.no_grad():
            return self.forward(weights, piece, x, kv)[0], light, None

    @torch.no_grad()
    def evaluate(self, weights: None, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        return self._run(piece.tokens if x is None else x, piece), None, None

    def recompute(self, weights: None, piece: Piece, ckpt: Any, kv: Any) -> GraphEnds:
        x, random, device_random = ckpt
        devices = [x.device] if device_random is not None else []
        with torch.random.fork_rng(devices):
            torch.set_rng_state(random)
            for device in devices:
                torch.cuda.set_rng_state(device_random, device)
            graph: GraphEnds = self.forward(weights, piece, x, kv)[1]
        return graph

    def backward(
        self,
        weights: None,
        gradients: None,
        piece: Piece,
        act: Any,
        g: Tensor | None,
        kv: Any,
        dkv: Any,
    ) -> Backward:
        """Both gradients in one pass."""
        x, out = act
        self._go_back(out, self._start(piece, out, g))
        return _or_zero(x.grad, x), None, None, self._loss_of(out)

    def input_gradient(
        self,
        weights: None,
        gradients: None,
        piece: Piece,
        act: Any,
        g: Tensor | None,
        kv: Any,
        dkv: Any,
    ) -> Backward:
        x, out = act
        start = self._start(piece, out, g)
        if not x.requires_grad:
            return None, None, WholeBackward(out, start), self._loss_of(out)
        dx, forks = backward_to_input(out, start, x, self.module.parameters())
        self._let_go(out)
        return _or_zero(dx, x), None, forks, self._loss_of(out)

    def weight_gradient(self, gradients: None, piece: Piece, stash: Any) -> None:
        if isinstance(stash, WholeBackward):
            self._go_back(stash.out, stash.g)
        else:
            backward_to_weights(stash)

    def _run(self, x: Tensor, piece: Piece) -> Tensor:
        """The output, or the loss."""
        if piece.slices != 1:
            raise _refusal(piece)
        out: Tensor = self.module(x)
        # a transfer takes nothing but whole memory
        return out.contiguous() if self.loss is None else self.loss(out, piece.labels)

    def _loss_of(self, out: Tensor) -> Tensor | None:
        return out if self.loss is not None else None

    def _go_back(self, out: Tensor, g: Tensor | None) -> None:
        """A whole backward; a first stage that is frozen as a whole has none."""
        if out.requires_grad:
            torch.autograd.backward(out, g)
            self._let_go(out)

    def _start(self, piece: Piece, out: Tensor, g: Tensor | None) -> Tensor | None:
        """Where the backward starts: what comes from the next stage, or the weight of the loss.

        The weight is the same for a whole batch, so its tensor is kept.
        """
        if self.loss is None:
            return g
        if self._scale != piece.scale:
            self._scale, self._seed = piece.scale, torch.full_like(out, piece.scale)
        return self._seed

    def _let_go(self, out: Tensor) -> None:
        """Part a loss, which stays until the end of the step, from the graph behind it."""
        if self.loss is not None:
            try:  # noqa: SIM105 - `suppress` takes longer than what it guards
                out.detach_()
            except RuntimeError:  # a view cannot be parted; its graph is empty by now
                pass


def _leaf(x: Tensor) -> Tensor:
    """What comes in as the leaf of a graph: received memory was made for this op alone, but the
    output of a stage on the same device belongs to that stage's graph."""
    return (x.detach() if x.requires_grad else x).requires_grad_()


def _or_zero(g: Tensor | None, x: Tensor) -> Tensor | None:
    """The gradient that the stage before waits for, also where the output ignores the input."""
    if g is not None:
        return g.contiguous()  # a transfer takes nothing but whole memory
    return torch.zeros_like(x) if x.requires_grad else None


def _refusal(piece: Piece) -> RunError:
    return RunError(
        f"microbatch {piece.mb} comes in {piece.slices} slices, but a plain module takes whole "
        "sequences",
        hint="take a schedule without slices (see `penstock list`), or a stage that keeps keys "
        "and values between slices",
    )
