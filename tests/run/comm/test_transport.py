"""Transports deliver each message into the tensor that awaits it, and let go of what has left."""

import pytest
import torch

from penstock.core.buffers import Buf
from penstock.run.comm.transport import Alone
from penstock.run.launch.worker_pool import Crew
from penstock.run.program.calls import Post
from run.jobs import exchanged, let_go

pytestmark = pytest.mark.torch

KINDS = ["gloo", "staged", "nccl"]


@pytest.mark.parametrize("kind", KINDS)
def test_messages_of_both_channels_arrive_whatever_was_sent_first(ranks: Crew, kind: str) -> None:
    found = ranks.run(exchanged, kind, 3)
    for rank, arrived in enumerate(found):
        sender = (rank - 1) % 4
        assert arrived == [[100.0 * sender + tag] * 3 for tag in range(6)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_transport_can_be_made_again_on_the_same_groups(ranks: Crew, kind: str) -> None:
    assert ranks.run(exchanged, kind, 1) == ranks.run(exchanged, kind, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_left_is_let_go_of(ranks: Crew, kind: str) -> None:
    assert ranks.run(let_go, kind) == [True] * 4


def test_one_device_has_nobody_to_talk_to() -> None:
    post = Post(1, 0, 0, 0, Buf("x", 0, 0, 0))
    with pytest.raises(AssertionError, match="one device sends to 1"):
        Alone().send(post, torch.ones(1))
    with pytest.raises(AssertionError, match="one device receives from 1"):
        Alone().receive(post, torch.ones(1))
