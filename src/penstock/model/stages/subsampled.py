"""A stage of a decoder that leaves out tokens: its layers, with brackets in front of some and
behind some (arch/subsampling.py).

Layers inside of a bracket work on its kept tokens, at their positions in the sequence. What went
into a bracket that closes on a later stage goes there with the messages (carried_levels.py).
"""

from typing import Any

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.layers.bracket import bypass_name, scorer_name
from penstock.arch.parameter_layout import ParameterLayout
from penstock.arch.subsampling import Pair, Subsampling
from penstock.model.attention.piece import Piece
from penstock.model.layers.linear import Queue
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import wait_for
from penstock.model.stages.bracket import Brackets
from penstock.model.stages.carried_levels import (
    BracketGradient,
    OpenBracket,
    carried_over,
    level_tokens,
)
from penstock.model.stages.decoder import DecoderStage
from penstock.model.stages.decoder_values import BracketWeights, StageWeights
from penstock.model.stages.kept_tokens import KeptRegions
from penstock.model.stages.local_brackets import LocalBrackets
from penstock.model.stages.subsampled_values import (
    SubsampledSaved,
)
from penstock.model.stages.subsampled_walk import BackwardWalk, ForwardWalk, Keeping, KeepingNothing


class SubsampledStage(DecoderStage):
    """Layers `layers` of a model that leaves out tokens."""

    def __init__(
        self,
        config: ModelConfig,
        layers: range,
        layout: ParameterLayout,
        *,
        length: int,
        like: Tensor,
        cell: Cell = SINGLE_RANK,
        local: LocalBrackets | None = None,
    ) -> None:
        """`local` is shared by the stages of a device."""
        super().__init__(config, layers, layout, length=length, like=like, cell=cell)
        assert config.subsampling is not None  # others are plain stages
        self.subsampling: Subsampling = config.subsampling
        self.numbers = layers
        self.before = self.subsampling.around(layers.start)
        self.behind = self.subsampling.around(layers.stop)
        self.local = local or LocalBrackets()
        ends = (like.dtype, cell.tokens, self.local.pairs)
        self.taken = carried_over(config, layers.start, *ends)
        self.handed = carried_over(config, layers.stop, *ends)
        self.brackets = Brackets(self.subsampling, cell.tokens)
        self.regions = KeptRegions(config, layers, length, like, cell)

    def views(self, flat: Tensor, frozen: Tensor | None = None) -> StageWeights:
        plain, views = super().views(flat, frozen), Views(self.layout, flat, frozen)
        pairs = [pair.number for pair in self.subsampling.pairs]
        scorers, bypasses = (
            {number: views.vector(name(number)) for number in pairs if name(number) in views}
            for name in (scorer_name, bypass_name)
        )
        return plain._replace(brackets=BracketWeights(scorers, bypasses))

    def memory(self, piece: Piece, kv: Any) -> Any:
        return self.regions.memory(piece, kv)

    def _saving(
        self, weights: Any, piece: Piece, x: Tensor | None, kv: Any, *, written: bool
    ) -> Work[tuple[Any, Tensor]]:
        keeping = Keeping([], [], [])
        y, walk = yield from self._through(weights, piece, x, kv, keeping, written=written)
        y, norm = self._normed(weights, y)
        out = y if self.output else None
        saved = SubsampledSaved(
            keeping.layers, out, norm, walk.open, walk.kept, keeping.scored, keeping.upsampled
        )
        return saved, y

    def _without_saving(
        self, weights: Any, piece: Piece, x: Tensor | None, kv: Any
    ) -> Work[tuple[Tensor, Any]]:
        keeping = KeepingNothing()
        y, walk = yield from self._through(weights, piece, x, kv, keeping, written=False)
        return y, walk.open

    def _through(
        self,
        weights: StageWeights,
        piece: Piece,
        x: Tensor | None,
        kv: Any,
        keeping: Keeping | KeepingNothing,
        *,
        written: bool,
    ) -> Work[tuple[Tensor, ForwardWalk]]:
        """What the layers give, and the brackets that are still open behind them."""
        walk, rows = yield from self._begun(piece, x, kv)
        brackets = weights.brackets
        assert brackets is not None  # made by views
        y = yield from self._first_input(weights, walk.inside(), rows)
        for number, layer in enumerate(self.numbers):
            for pair in self.subsampling.opened(layer):
                y = yield from walk.open_bracket(brackets.scorers[pair.number], pair, y, keeping)
            context = self.regions.context(piece, layer, walk.kept, kv, written=written)
            y, saved = yield from self.layers[number].forward(weights.layers[number], y, context)
            keeping.layers.append(saved)
            for pair in self.subsampling.closed(layer):
                y = yield from walk.close_bracket(brackets.bypasses[pair.number], pair, y, keeping)
        return y, walk

    def _begun(
        self, piece: Piece, x: Tensor | None, kv: Any
    ) -> Work[tuple[ForwardWalk, Tensor | None]]:
        """A walk with the brackets that are open in front of the stage, and the rows that it
        begins with."""
        walk = ForwardWalk(self.brackets, self.regions, piece, kv, self.local)
        if self.taken is None or x is None:
            return walk, x
        rows, brackets, numbers = self.taken.split(piece, x)
        for pair, own, kept, weights in zip(self.before, brackets, numbers[::2], numbers[1::2]):
            held = yield from self._taken_over(piece, pair, own)
            walk.enter(pair, OpenBracket(held, self.taken.opened(kept), weights))
        return walk, rows

    def _taken_over(self, piece: Piece, pair: Pair, handed: Tensor) -> Work[Tensor]:
        """What is held of what went past a bracket, of what came from another stage."""
        if pair in self.local:
            return handed
        count = level_tokens(piece, pair.level - 1)
        held, pending = self.cell.tokens.take_over(handed, count)
        yield from wait_for(pending)
        return held

    def _handed_on(self, y: Tensor, loads: Any) -> Tensor | None:
        """The next stage's input; what is carried is let go of."""
        if self.handed is None or self.output is not None:
            return super()._handed_on(y, None)
        message = self.handed.joined(self.cell.tokens.hand_on(y), loads)
        loads.clear()
        return message

    @torch.no_grad()
    def _backward(
        self,
        weights: Any,
        gradients: Any,
        piece: Piece,
        act: Any,
        g: Tensor | None,
        kv: Any,
        queue: Queue,
    ) -> Work[tuple[Tensor | None, Tensor | None]]:
        walk, rows = yield from self._begun_backward(piece, act, g, kv)
        inside = walk.inside(self.behind)
        loss, dx = yield from self._output_gradient(weights, gradients, inside, act, rows)
        for number in reversed(range(len(self.layers))):
            layer = self.numbers[number]
            for pair in reversed(self.subsampling.closed(layer)):
                scale, own = (each.brackets.bypasses[pair.number] for each in (weights, gradients))
                dx = yield from walk.close_bracket(scale, own, pair, dx)
            context = self.regions.context(piece, layer, act.kept, kv, written=True)
            of_layer = (weights.layers[number], gradients.layers[number], act.layers.pop())
            dx = yield from self.layers[number].backward(*of_layer, dx, context, queue)
            queue.meanwhile()
            for pair in reversed(self.subsampling.opened(layer)):
                scorer, own = (each.brackets.scorers[pair.number] for each in (weights, gradients))
                dx = yield from walk.open_bracket(scorer, own, pair, dx)
        if kv is not None and piece.slice == 0:
            kv.close_gradients()
        return (yield from self._left(gradients, piece, dx, walk)), loss

    def _begun_backward(
        self, piece: Piece, act: Any, g: Tensor | None, kv: Any
    ) -> Work[tuple[BackwardWalk, Tensor | None]]:
        walk = BackwardWalk(self.brackets, self.regions, piece, act, kv, self.local)
        if self.handed is None or g is None:
            return walk, g
        rows, brackets, numbers = self.handed.split(piece, g)
        for pair, own, weights in zip(self.behind, brackets, numbers[1::2]):
            held = yield from self._taken_over(piece, pair, own)
            walk.back.append(BracketGradient(held, weights))
        return walk, rows

    def _left(
        self, gradients: Any, piece: Piece, dx: Tensor, walk: BackwardWalk
    ) -> Work[Tensor | None]:
        """The gradient of the stage's input, with those of brackets that are open in front of
        it."""
        if self.taken is None:
            return (yield from self._input_gradient(gradients, piece, dx, None))
        return self.taken.joined_gradients(self.cell.tokens.hand_on(dx), walk.back)
