"""Mistakes with lent attention for the verifier to notice."""

from unittest import mock

import torch
from torch import Tensor

from penstock.model.attention import lending
from penstock.run.comm.gloo import Gloo
from penstock.run.process.rendezvous import Connection
from penstock.run.program.calls import Post
from penstock.verify.trial import TrialPart, run_trial
from penstock.verify.variants import Trial

_send = Gloo.send
_merge = lending.merge


def _empty(connection: Connection, trial: Trial, way: str) -> TrialPart:
    """The messages of one way of the first loan have nothing in them."""

    def lossy(transport: Gloo, post: Post, tensor: Tensor) -> None:
        empty = (post.buf.name, post.buf.number) == (way, 0)
        _send(transport, post, torch.zeros_like(tensor) if empty else tensor)

    with mock.patch.object(Gloo, "send", lossy):
        return run_trial(connection, trial)


def nothing_lent(connection: Connection, trial: Trial) -> TrialPart:
    """Another device attends to zeros."""
    return _empty(connection, trial, "lent")


def nothing_returned(connection: Connection, trial: Trial) -> TrialPart:
    """A result is zeros when it comes back."""
    return _empty(connection, trial, "returned")


def one_part_alone(connection: Connection, trial: Trial) -> TrialPart:
    """What the other device has computed is not joined with the rest, once."""
    left = [1]

    def join(*parts: Tensor) -> None:
        if not left:
            _merge(*parts)
        left.clear()

    with mock.patch.object(lending, "merge", join):
        return run_trial(connection, trial)


def lost_result(connection: Connection, trial: Trial) -> TrialPart:
    """One result is never sent."""

    def lossy(transport: Gloo, post: Post, tensor: Tensor) -> None:
        if (post.buf.name, post.buf.number) != ("returned", 0):
            _send(transport, post, tensor)

    with mock.patch.object(Gloo, "send", lossy):
        return run_trial(connection, trial)
