"""A section of a decoder as a stage of a schedule that cuts sequences into slices."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from penstock.errors import RunError, ShapeError
from penstock.model.attention.piece import Piece
from penstock.model.decoders.decoder_stages import DecoderSection
from penstock.model.decoders.slice_interface import (
    SliceMemories,
    documents_of,
    slice_at_work,
    take_registry,
)
from penstock.model.stages.module_stage import ModuleStage
from penstock.model.stages.stage import Backward, Forward

TRIAL_LENGTHS = (4, 2)
"""Tokens of the slices with which a section is tried."""
NEAR_SLICES = {torch.float64: 1e-9, torch.float32: 1e-3}
"""How far slices may be from the whole, relative to it; other types are rounded coarsely."""
COARSE_SLICES = 5e-2


class SlicedStage(ModuleStage):
    """Keeps keys and values of a microbatch from one slice to the next."""

    def forward(self, weights: None, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        memories = kv if kv is not None else SliceMemories()
        with slice_at_work(self._with_documents(piece), memories):
            out, act, _ = super().forward(weights, piece, x, None)
        return out, act, memories

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
        kept = self._opened(kv, dkv)
        dx, _, _, loss = super().backward(weights, gradients, piece, act, g, None, None)
        return dx, self._closed(piece, kept), None, loss

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
        """The first stage has no input to go to, but earlier slices wait for the gradients of their
        keys: it does all of its backward here."""
        if isinstance(self.module, DecoderSection) and self.module.first:
            return self.backward(weights, gradients, piece, act, g, kv, dkv)
        kept = self._opened(kv, dkv)
        found = super().input_gradient(weights, gradients, piece, act, g, None, None)
        return found[0], self._closed(piece, kept), found[2], found[3]

    def weight_gradient(self, gradients: None, piece: Piece, stash: Any) -> None:
        if stash is not None:
            super().weight_gradient(gradients, piece, stash)

    def _run(self, x: Any, piece: Piece) -> Any:
        keywords = self.keywords[piece.mb] if self.keywords else {}
        if other := sorted(set(keywords) - {"position_ids"}):
            raise RunError(
                f"{', '.join(other)} cannot be given where sequences are cut into slices",
                hint="mark documents by position_ids; padding at the end of rows needs no mask, "
                "if its targets do not count",
            )
        positions = keywords.get("position_ids")
        if positions is None:
            positions = torch.arange(piece.length, device=x.device)[None]
        out = self.module(x, position_ids=positions[:, piece.start : piece.end])
        return out if self.loss is None else self.loss(out, piece.labels)

    def _with_documents(self, piece: Piece) -> Piece:
        keywords = self.keywords[piece.mb] if self.keywords else {}
        return piece._replace(documents=documents_of(keywords.get("position_ids"), piece.rows))

    def _opened(self, kv: SliceMemories, dkv: Any) -> SliceMemories:
        """Where gradients of keys and values are left, which the last slice of a sequence opens."""
        if dkv is None:
            kv.open_gradients()
        return kv

    def _closed(self, piece: Piece, kv: SliceMemories) -> SliceMemories:
        if piece.slice == 0:
            kv.close_gradients()
        return kv


def take_slices(modules: Sequence[Module]) -> None:
    """Make sections ready for slices, or refuse them by name: each has to give the same numbers in
    two slices as it did whole, with its own attention."""
    for module in modules:
        if not isinstance(module, DecoderSection):
            raise ShapeError(
                f"a {type(module).__name__} takes whole sequences: a plain module cannot hand keys "
                "and values from one slice to the next",
                hint="take a schedule without slices (see `penstock list`), or stages of "
                "penstock.run.decoder_stages",
            )
    sections = [module for module in modules if isinstance(module, DecoderSection)]
    training = [section.training for section in sections]
    try:
        with torch.no_grad(), torch.random.fork_rng():
            tried = [(section.eval(), _trial_input(section)) for section in sections]
            whole = [section(x) for section, x in tried]
            for section in sections:
                take_registry(section.model)
            for (section, x), wanted in zip(tried, whole):
                _refuse_far(section, _in_slices(section, x), wanted)
    finally:
        for section, before in zip(sections, training):
            section.train(before)


def _trial_input(module: DecoderSection) -> Tensor:
    count, weight = sum(TRIAL_LENGTHS), next(module.parameters())
    config: Any = module.model.config
    if module.first:
        words = int(config.vocab_size)
        return torch.arange(1, 1 + count, device=weight.device)[None] % words
    made = torch.randn(1, count, config.hidden_size, generator=torch.Generator().manual_seed(1))
    return made.to(weight)


def _in_slices(module: DecoderSection, x: Tensor) -> Tensor:
    stage, memories, parts, start = SlicedStage(module), None, [], 0
    for slice, tokens in enumerate(TRIAL_LENGTHS):
        end, own = start + tokens, x[:, start : start + tokens]
        piece = Piece(0, slice, len(TRIAL_LENGTHS), start, end, x.shape[1], own, own, (), 1.0)
        out, _, memories = stage.forward(None, piece, None if module.first else own, memories)
        assert out is not None  # only a stage with a loss gives none
        parts.append(out)
        start = end
    return torch.cat(parts, dim=1)


def _refuse_far(module: DecoderSection, found: Tensor, whole: Tensor) -> None:
    far = float((found - whole).norm() / whole.norm())
    if not far <= NEAR_SLICES.get(whole.dtype, COARSE_SLICES):
        raise ShapeError(
            f"{type(module.model).__name__} runs whole sequences only: in slices its "
            f"{module.extra_repr()} give other numbers, off by {far:.2g}",
            hint="take a schedule without slices (see `penstock list`)",
        )
