"""Mistakes with the attention of gangs for the verifier to notice."""

from unittest import mock

from torch import Tensor

from penstock.model.attention import sharing
from penstock.model.attention.back_end import Leave
from penstock.model.attention.lent_keys import LentPart
from penstock.run.process.rendezvous import Connection
from penstock.verify.trial import TrialPart, run_trial
from penstock.verify.variants import Trial

_leaves = sharing._SharedGradients.leaves


def keys_of_members_left_out(connection: Connection, trial: Trial) -> TrialPart:
    """What members away from home answer about keys, in the backward, is added nowhere."""

    def leaves(total: sharing._SharedGradients, part: LentPart) -> Leave:
        return _nowhere if part.queries.start == 0 else _leaves(total, part)

    with mock.patch.object(sharing._SharedGradients, "leaves", leaves):
        return run_trial(connection, trial)


def _nowhere(keys: range, dk: Tensor, dv: Tensor) -> None:
    """The first share of a slice is always that of a member away from home."""
