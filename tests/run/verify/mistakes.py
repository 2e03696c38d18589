"""Mistakes for the verifier to notice: each is a job that runs a trial with one thing wrong."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from penstock.data.batch import Microbatch
from penstock.model.decoder import DecoderStage
from penstock.model.piece import Piece
from penstock.run import engine
from penstock.run.compiled import Post
from penstock.run.engine import Engine
from penstock.run.rendezvous import Connection
from penstock.run.stage import Backward
from penstock.run.transport import Gloo
from penstock.run.verify.variants import Trial
from penstock.run.verify.work import Part, run_trial

_feed = engine.feed
_input_gradient = DecoderStage.input_gradient
_weight_gradient = DecoderStage.weight_gradient
_send = Gloo.send


def relay_of_zeros(connection: Connection, trial: Trial) -> Part:
    """Earlier slices get no key/value gradients of later ones."""

    def forgetful(
        stage: DecoderStage, piece: Piece, act: Any, g: Tensor | None, kv: Any, dkv: Any
    ) -> Backward:
        done = _input_gradient(stage, piece, act, g, kv, dkv)
        for tensor in (*done.dkv.keys, *done.dkv.values):
            if tensor is not None:
                tensor.zero_()
        return done

    with mock.patch.object(DecoderStage, "input_gradient", forgetful):
        return run_trial(connection, trial)


def empty_transfer(connection: Connection, trial: Trial) -> Part:
    """One gradient arrives as zeros."""

    def lossy(transport: Gloo, post: Post, tensor: Tensor) -> None:
        empty = post.buf.name == "g" and post.unit == 1
        _send(transport, post, torch.zeros_like(tensor) if empty else tensor)

    with mock.patch.object(Gloo, "send", lossy):
        return run_trial(connection, trial)


def lost_transfer(connection: Connection, trial: Trial) -> Part:
    """One gradient is never sent."""

    def lossy(transport: Gloo, post: Post, tensor: Tensor) -> None:
        if not (post.buf.name == "g" and post.unit == 1):
            _send(transport, post, tensor)

    with mock.patch.object(Gloo, "send", lossy):
        return run_trial(connection, trial)


def _fed(
    connection: Connection, trial: Trial, change: Callable[[list[Piece]], list[Piece]]
) -> Part:
    def changed(*args: Any, **kwargs: Any) -> list[Piece]:
        return change(_feed(*args, **kwargs))

    with mock.patch.object(engine, "feed", changed):
        return run_trial(connection, trial)


def exchanged_slices(connection: Connection, trial: Trial) -> Part:
    """Two slices of a microbatch carry each other's tokens and labels."""

    def exchange(pieces: list[Piece]) -> list[Piece]:
        first, second, *others = pieces
        return [
            replace(first, tokens=second.tokens, labels=second.labels),
            replace(second, tokens=first.tokens, labels=first.labels),
            *others,
        ]

    return _fed(connection, trial, exchange)


def one_long_document(connection: Connection, trial: Trial) -> Part:
    """Documents of a packed sequence see each other."""

    def unpacked(pieces: list[Piece]) -> list[Piece]:
        return [replace(piece, documents=((0,),) * piece.rows) for piece in pieces]

    return _fed(connection, trial, unpacked)


def own_labels_only(connection: Connection, trial: Trial) -> Part:
    """The loss is divided by the labels of one replica instead of all."""

    def count(_: Engine, batch: Sequence[Microbatch]) -> int:
        return sum(microbatch.valid for microbatch in batch)

    with mock.patch.object(Engine, "_count", count):
        return run_trial(connection, trial)


def weights_twice(connection: Connection, trial: Trial) -> Part:
    """Weight gradients are added twice on one stage."""

    def twice(stage: DecoderStage, piece: Piece, stash: Any) -> None:
        if stage.embedding is not None:
            _weight_gradient(stage, piece, list(stash))
        _weight_gradient(stage, piece, stash)

    with mock.patch.object(DecoderStage, "weight_gradient", twice):
        return run_trial(connection, trial)


def untied(connection: Connection, trial: Trial) -> Part:
    """Embedding and head keep their gradients to themselves."""
    with mock.patch.object(engine, "tie", return_value=None):
        return run_trial(connection, trial)
