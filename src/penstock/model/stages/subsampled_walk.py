"""On the way through the layers of a stage: which brackets are open, and what was kept in them."""

from typing import Any, NamedTuple

from torch import Tensor

from penstock.arch.subsampling import Pair
from penstock.model.attention.piece import Piece
from penstock.model.layers.decoder_layer import LayerSaved
from penstock.model.layers.subsample import UpsampledSaved
from penstock.model.parallel.group import Work
from penstock.model.stages.bracket import Brackets
from penstock.model.stages.carried_levels import BracketGradient, OpenBracket
from penstock.model.stages.kept_tokens import KeptRegions
from penstock.model.stages.level_memory import LevelMemory
from penstock.model.stages.local_brackets import LocalBrackets
from penstock.model.stages.subsampled_values import KeptTokens, ScoredSaved, SubsampledSaved


class Keeping(NamedTuple):
    """What a forward keeps for its backward, in the order in which it is met."""

    layers: list[LayerSaved]
    scored: list[ScoredSaved]
    upsampled: list[UpsampledSaved]


class _Nothing:
    def append(self, _: Any) -> None:
        return


class KeepingNothing:
    """For a forward without a backward."""

    layers = scored = upsampled = _Nothing()


class ForwardWalk:
    """Forward through the layers of a stage, on one slice."""

    def __init__(
        self,
        brackets: Brackets,
        regions: KeptRegions,
        piece: Piece,
        memory: LevelMemory | None,
        local: LocalBrackets,
    ) -> None:
        self.brackets, self.regions, self.piece = brackets, regions, piece
        self.memory, self.local = memory, local
        self.open: list[OpenBracket] = []
        self.pairs: list[Pair] = []
        self.kept: dict[int, KeptTokens] = {}
        """Of every bracket that was open so far, by number."""

    def inside(self) -> Piece:
        """The slice as the next layer sees it."""
        pair = self.pairs[-1] if self.pairs else None
        kept = self.kept[pair.number] if pair else None
        return self.regions.piece(self.piece, pair, kept, self.memory)

    def enter(self, pair: Pair, carried: OpenBracket) -> None:
        """Go into a bracket."""
        parent = self.kept[self.pairs[-1].number] if self.pairs else None
        self.kept[pair.number] = self.regions.kept(
            self.piece, pair, parent, carried.kept, self.memory
        )
        self.open.append(carried)
        self.pairs.append(pair)

    def open_bracket(
        self, scorer: Tensor, pair: Pair, x: Tensor, keeping: Keeping | KeepingNothing
    ) -> Work[Tensor]:
        """The tokens that are kept."""
        padding = _padding(self.piece, self.kept[self.pairs[-1].number] if self.pairs else None)
        work = self.brackets.open(scorer, pair, x, self.inside(), padding)
        y, carried, saved = yield from work
        if pair in self.local:
            self.local.keep(self.piece, pair, x)
            carried, saved = carried._replace(x=x[:0]), saved._replace(x=x[:0])
        self.enter(pair, carried)
        keeping.scored.append(saved)
        return y

    def close_bracket(
        self, scale: Tensor, pair: Pair, y: Tensor, keeping: Keeping | KeepingNothing
    ) -> Work[Tensor]:
        """All tokens that were there in front of the bracket."""
        self.pairs.pop()
        carried = self.open.pop()
        if pair in self.local:
            carried = carried._replace(x=self.local.find(self.piece, pair))
        work = self.brackets.close(scale, carried, y, self.inside())
        out, saved = yield from work
        keeping.upsampled.append(saved)
        return out


class BackwardWalk:
    """Back through the layers of a stage, on one slice."""

    def __init__(
        self,
        brackets: Brackets,
        regions: KeptRegions,
        piece: Piece,
        saved: SubsampledSaved,
        memory: LevelMemory | None,
        local: LocalBrackets,
    ) -> None:
        self.brackets, self.regions, self.piece = brackets, regions, piece
        self.saved, self.memory, self.local = saved, memory, local
        self.back: list[BracketGradient] = []
        """Of brackets that are open, outermost first."""

    def inside(self, pairs: tuple[Pair, ...]) -> Piece:
        """The slice as layers see it inside of some pairs, outermost first."""
        if not pairs:
            return self.piece
        kept = self.saved.kept[pairs[-1].number]
        return self.regions.piece(self.piece, pairs[-1], kept, self.memory)

    def close_bracket(self, scale: Tensor, gradient: Tensor, pair: Pair, d: Tensor) -> Work[Tensor]:
        """The gradient of what the layers inside gave."""
        work = self.brackets.close_backward(
            scale, gradient, pair, self.saved.upsampled.pop(), d, self._around(pair)
        )
        dy, back = yield from work
        if pair in self.local:
            self.local.keep_gradient(self.piece, pair, back.x)
            back = back._replace(x=back.x[:0])
        self.back.append(back)
        return dy

    def open_bracket(self, scorer: Tensor, gradient: Tensor, pair: Pair, d: Tensor) -> Work[Tensor]:
        """The gradient of what went into the bracket."""
        saved, back = self.saved.scored.pop(), self.back.pop()
        if pair in self.local:
            saved = saved._replace(x=self.local.take(self.piece, pair))
            back = back._replace(x=self.local.take_gradient(self.piece, pair))
        work = self.brackets.open_backward(
            scorer, gradient, pair, saved, d, back, self._around(pair)
        )
        return (yield from work)

    def _parent(self, pair: Pair) -> Pair | None:
        return self.regions.subsampling.parent(pair)

    def _around(self, pair: Pair) -> Piece:
        parent = self._parent(pair)
        return self.inside((parent,) if parent else ())


def _padding(piece: Piece, kept: KeptTokens | None) -> Tensor | None:
    """Tokens that are never kept, of those in front of a bracket."""
    if kept is not None:
        return kept.padding
    return piece.levels.padding if piece.levels else None
