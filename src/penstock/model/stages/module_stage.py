"""Any torch module as a stage, with its backward left to autograd.

A module that was written for one process knows nothing of slices: it takes the whole sequence at
once, and a schedule that cuts sequences is refused. Everything else works: a full backward is one
pass of autograd, a split one walks its graph (model/stages/split_autograd.py), and a forward that
is to be run again keeps its input and the state of the random numbers.

What a module takes and gives is one tensor, or several in tuples and dictionaries; then they move
between stages as one (model/stages/value_tree.py).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from penstock.errors import RunError
from penstock.model.attention.piece import Piece
from penstock.model.stages.split_autograd import backward_to_input, backward_to_weights
from penstock.model.stages.stage import Backward, Forward
from penstock.model.stages.value_tree import (
    ONE_TENSOR,
    Form,
    differentiable,
    leaves,
    map_leaves,
    words_of,
)

Loss = Callable[[Any, Any], Tensor]
"""The summed loss of a module's output and the labels of a microbatch."""


GraphEnds = tuple[Any, Any]
"""The ends of what autograd has recorded: the input, and the output or the summed loss."""


class LightSaved(NamedTuple):
    """What a forward keeps that is to be run again."""

    x: Tensor | None
    random: Tensor
    """State of the generators of the host and, for a tensor on a GPU, of that GPU."""
    device_random: Tensor | None


class WholeBackward(NamedTuple):
    """A backward that was put off as a whole: the first stage has no input to take out of it."""

    out: Any
    g: Tensor | None


class ModuleStage:
    """A module that takes what the one before gives; the first one takes the inputs.

    The last one has a `loss`, which makes one number of its output and the labels.
    """

    def __init__(
        self,
        module: Module,
        loss: Loss | None = None,
        *,
        taken: Form = ONE_TENSOR,
        given: Form = ONE_TENSOR,
    ) -> None:
        self.module, self.loss = module, loss
        self.taken, self.given = taken, given
        self.keywords: Sequence[Mapping[str, Any]] = ()
        """What the module is given beside its input, for each microbatch; nothing where empty."""
        self.ignores_input = False
        """Whether a backward has found no way from the output to the input."""
        self._scale, self._seed = 0.0, torch.zeros(())

    def views(self, flat: Tensor, frozen: Tensor | None = None) -> None:
        """The module owns its parameters: no buffer is looked at."""
        return

    def forward(self, weights: None, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        entry = piece.tokens if x is None else self._entry(x)
        out = self._run(entry, piece)
        return (self._moved(out, piece) if self.loss is None else None), (entry, out), None

    def forward_light(self, weights: None, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        on_device = x is not None and x.is_cuda
        state = torch.cuda.get_rng_state(x.device) if x is not None and on_device else None
        light = LightSaved(x, torch.get_rng_state(), state)
        with torch.no_grad():
            out, _, kv = self.forward(weights, piece, x, kv)
        return out, light, kv

    @torch.no_grad()
    def evaluate(self, weights: None, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        out, act, kv = self.forward(weights, piece, x, kv)
        return (out if self.loss is None else act[1]), None, kv

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
        return self._gradient_of(x), None, None, self._loss_of(out)

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
        wanted = _wanted(x)
        if not wanted:
            return None, None, WholeBackward(out, start), self._loss_of(out)
        ends = self._ends(out, start)
        found, forks = backward_to_input(*ends, wanted, self.module.parameters())
        self._let_go(out)
        return self._to_previous(wanted, found), None, forks, self._loss_of(out)

    def weight_gradient(self, gradients: None, piece: Piece, stash: Any) -> None:
        if isinstance(stash, WholeBackward):
            self._go_back(stash.out, stash.g)
        else:
            backward_to_weights(stash)

    def _entry(self, x: Tensor) -> Any:
        """What comes in as the leaves of a graph."""
        if isinstance(self.taken.patterns, Tensor):
            return _leaf(x)
        return map_leaves(lambda leaf: _leaf(leaf), self.taken.parted(x))

    def _run(self, x: Any, piece: Piece) -> Any:
        """The output, or the loss."""
        if piece.slices != 1:
            raise _refusal(piece)
        keywords = self.keywords[piece.mb] if self.keywords else {}
        out = self.module(x, **keywords)
        return out if self.loss is None else self.loss(out, piece.labels)

    def _moved(self, out: Any, piece: Piece) -> Tensor:
        """What the next stage is sent, for which it has made room as the first microbatch was."""
        if self.given is not ONE_TENSOR and piece.slices == 1 and not self.given.fits(out):
            raise RunError(
                f"a stage gives {words_of(out)} for microbatch {piece.mb}, but it gave "
                f"{words_of(self.given.patterns)} when it was tried",
                hint="give the same sizes and types for every microbatch: memory for transfers is "
                "made before they come; pad what is shorter",
            )
        return self.given.joined(out)

    def _loss_of(self, out: Tensor) -> Tensor | None:
        return out if self.loss is not None else None

    def _go_back(self, out: Any, g: Tensor | None) -> None:
        """A whole backward; a first stage that is frozen as a whole has none."""
        if isinstance(out, Tensor) and out.requires_grad:  # the usual case
            torch.autograd.backward(out, g)
            self._let_go(out)
            return
        outputs, starts = self._ends(out, g)
        if outputs:
            torch.autograd.backward(outputs, starts)
            self._let_go(out)

    def _ends(self, out: Any, g: Tensor | None) -> tuple[list[Tensor], list[Tensor | None]]:
        """Outputs that lead somewhere, and the gradients from which their backwards start."""
        if isinstance(out, Tensor):
            return ([out], [g]) if out.requires_grad else ([], [])
        assert g is not None  # several tensors are no loss, and a next stage has sent this
        starts = self.given.gradient.parted(g)
        pairs = [pair for pair in zip(differentiable(out), starts) if pair[0].requires_grad]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def _gradient_of(self, x: Any) -> Tensor | None:
        """What a whole backward has left at the input; one tensor is the usual case, whose host
        time is watched."""
        if isinstance(x, Tensor) and x.grad is not None:
            return x.grad.contiguous()
        wanted = _wanted(x)
        return self._to_previous(wanted, [leaf.grad for leaf in wanted])

    def _to_previous(
        self, wanted: Sequence[Tensor], found: Sequence[Tensor | None]
    ) -> Tensor | None:
        """The gradient that the stage before waits for, also where the output ignores the input."""
        if not wanted:
            return None
        if all(g is None for g in found):
            self.ignores_input = True
        filled = tuple(torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found))
        one = isinstance(self.taken.patterns, Tensor)
        return self.taken.gradient.joined(filled[0] if one else filled)

    def _start(self, piece: Piece, out: Any, g: Tensor | None) -> Tensor | None:
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
    output of a stage on the same device belongs to that stage's graph. Numbers that no gradient
    can reach are taken as they are."""
    if not x.is_floating_point():
        return x
    return (x.detach() if x.requires_grad else x).requires_grad_()


def _wanted(x: Any) -> list[Tensor]:
    """The tensors of an input whose gradients the stage before waits for; none of the first's."""
    if isinstance(x, Tensor):
        return [x] if x.requires_grad else []
    return [leaf for leaf in leaves(x) if isinstance(leaf, Tensor) and leaf.requires_grad]


def _refusal(piece: Piece) -> RunError:
    return RunError(
        f"microbatch {piece.mb} comes in {piece.slices} slices, but a plain module takes whole "
        "sequences",
        hint="take a schedule without slices (see `penstock list`), or a stage that keeps keys "
        "and values between slices",
    )
