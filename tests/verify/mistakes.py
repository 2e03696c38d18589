"""Mistakes for the verifier to notice: each is a job that runs a trial with one thing wrong."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from penstock.data.batch import Microbatch
from penstock.model.attention.memory import Relay
from penstock.model.attention.piece import Piece
from penstock.model.layers.linear import Queue
from penstock.model.stages import decoder
from penstock.run.comm.gloo import Gloo
from penstock.run.process.rendezvous import Connection
from penstock.run.program.calls import Join, Post
from penstock.run.step import batch_pieces
from penstock.run.step.engine import Engine
from penstock.run.step.shard_sums import ShardRanks, ShardSums
from penstock.run.step.stage_end import StageEnd
from penstock.verify.trial import TrialPart, run_trial
from penstock.verify.variants import Trial
from verify.unequal_jobs import UnequalCase, gradients_of_batches

_cut_batch = batch_pieces.cut_batch
_leave = Relay.leave
_send = Gloo.send
_add_products = decoder.add_products
_shared_gradient = StageEnd.shared_gradient
_add_up = Engine._add_up


def relay_of_zeros(connection: Connection, trial: Trial) -> TrialPart:
    """Earlier slices get no key/value gradients of later ones."""
    with _zeros_relayed():
        return run_trial(connection, trial)


def batches_with_relay_of_zeros(connection: Connection, case: UnequalCase) -> list[TrialPart]:
    """The same in batches of unequal sequences."""
    with _zeros_relayed():
        return gradients_of_batches(connection, case)


def _zeros_relayed() -> AbstractContextManager[object]:
    def leave(relay: Relay, keys: range, dk: Tensor, dv: Tensor) -> None:
        _leave(relay, keys, torch.zeros_like(dk), torch.zeros_like(dv))

    return mock.patch.object(Relay, "leave", leave)


def empty_transfer(connection: Connection, trial: Trial) -> TrialPart:
    """One gradient arrives as zeros."""

    def lossy(transport: Gloo, post: Post, tensor: Tensor) -> None:
        empty = post.buf.name == "g" and post.unit == 1
        _send(transport, post, torch.zeros_like(tensor) if empty else tensor)

    with mock.patch.object(Gloo, "send", lossy):
        return run_trial(connection, trial)


def lost_transfer(connection: Connection, trial: Trial) -> TrialPart:
    """One gradient is never sent."""

    def lossy(transport: Gloo, post: Post, tensor: Tensor) -> None:
        if not (post.buf.name == "g" and post.unit == 1):
            _send(transport, post, tensor)

    with mock.patch.object(Gloo, "send", lossy):
        return run_trial(connection, trial)


def _fed(
    connection: Connection, trial: Trial, change: Callable[[list[Piece]], list[Piece]]
) -> TrialPart:
    def changed(*args: Any, **kwargs: Any) -> list[Piece]:
        return change(_cut_batch(*args, **kwargs))

    with mock.patch.object(batch_pieces, "cut_batch", changed):
        return run_trial(connection, trial)


def exchanged_slices(connection: Connection, trial: Trial) -> TrialPart:
    """Two slices of a microbatch carry each other's tokens and labels."""

    def exchange(pieces: list[Piece]) -> list[Piece]:
        first, second, *others = pieces
        return [
            first._replace(tokens=second.tokens, labels=second.labels),
            second._replace(tokens=first.tokens, labels=first.labels),
            *others,
        ]

    return _fed(connection, trial, exchange)


def one_long_document(connection: Connection, trial: Trial) -> TrialPart:
    """Documents of a packed sequence see each other."""

    def unpacked(pieces: list[Piece]) -> list[Piece]:
        return [piece._replace(documents=((0,),) * piece.rows) for piece in pieces]

    return _fed(connection, trial, unpacked)


def own_labels_only(connection: Connection, trial: Trial) -> TrialPart:
    """The loss is divided by the labels of one replica instead of all."""

    def count(_: Engine, batch: Sequence[Microbatch]) -> int:
        return sum(microbatch.valid for microbatch in batch)

    with mock.patch.object(Engine, "_count", count):
        return run_trial(connection, trial)


def weights_twice(connection: Connection, trial: Trial) -> TrialPart:
    """The weight gradients of one process are added twice."""

    def twice(gradients: Sequence[Tensor], queue: Queue) -> None:
        if connection.rank:
            _add_products(gradients, list(queue))
        _add_products(gradients, queue)

    with mock.patch.object(decoder, "add_products", twice):
        return run_trial(connection, trial)


def untied(connection: Connection, trial: Trial) -> TrialPart:
    """Embedding and head keep their gradients to themselves."""

    def copied(end: StageEnd) -> Tensor | None:
        shared = _shared_gradient(end)
        return None if shared is None else shared.clone()

    with (
        mock.patch.object(StageEnd, "shared_gradient", copied),
        mock.patch.object(StageEnd, "share"),
    ):
        return run_trial(connection, trial)


def one_fails(connection: Connection, trial: Trial, patience: float) -> TrialPart:
    """One process ends with an error while the others wait for it."""
    if connection.rank == 1:
        raise RuntimeError("the device is gone")
    return run_trial(connection, trial)


def _without_collective(connection: Connection, trial: Trial, name: str) -> TrialPart:
    """Of one microbatch every device takes its own part of something for what all shards have."""

    def alone(engine: Engine, join: Join, parts: list[Any]) -> Any:
        if (join.buf.name, join.buf.mb) != (name, 1):
            return _add_up(engine, join, parts)
        return ShardSums(ShardRanks(None), engine.device).of(parts[0])

    with mock.patch.object(Engine, "_add_up", alone):
        return run_trial(connection, trial)


def embeddings_apart(connection: Connection, trial: Trial) -> TrialPart:
    """The parts of an embedding are not added up."""
    return _without_collective(connection, trial, "partial")


def statistics_apart(connection: Connection, trial: Trial) -> TrialPart:
    """Softmax statistics are those of a device's own words."""
    return _without_collective(connection, trial, "stat")


def gradients_apart(connection: Connection, trial: Trial) -> TrialPart:
    """The parts of the output's gradient are not added up."""
    return _without_collective(connection, trial, "gpart")


def _without_message(connection: Connection, trial: Trial, name: str) -> TrialPart:
    def lossy(transport: Gloo, post: Post, tensor: Tensor) -> None:
        empty = (post.buf.name, post.unit) == (name, 1)
        _send(transport, post, torch.zeros_like(tensor) if empty else tensor)

    with mock.patch.object(Gloo, "send", lossy):
        return run_trial(connection, trial)


def empty_output(connection: Connection, trial: Trial) -> TrialPart:
    """Other devices get zeros for the model's output."""
    return _without_message(connection, trial, "out")


def empty_input_gradient(connection: Connection, trial: Trial) -> TrialPart:
    """Other devices get zeros for the gradient of the model's input."""
    return _without_message(connection, trial, "gin")
