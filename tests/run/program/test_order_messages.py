"""Copies of two devices that share a way to the host take turns, by messages."""

import pytest

from penstock.core.program import Channel, Program
from penstock.lower import lower_for_running
from penstock.run.program.calls import Lane
from penstock.run.program.compile import compile_lane
from penstock.run.program.order_messages import order_channels, order_edges
from penstock.schedules import build

pytestmark = pytest.mark.torch


def _program() -> Program:
    request = {"devices": 2, "microbatches": 3, "chunks": 2, "options": {"ratio": "1/2"}}
    return lower_for_running(build("po-h", **request))  # type: ignore[arg-type]


def _messages(lane: Lane, side: str) -> dict[int, str]:
    """Tags of messages that are no transfers, with the op that sends them or waits for them."""
    posts = [(post, call.op) for call in lane.calls for post in getattr(call, side)]
    return {post.tag: str(op) for post, op in posts if post.buf.name in ("host", "back")}


def test_every_order_between_devices_is_one_message_from_the_first_op_to_the_other() -> None:
    program = _program()
    edges, table = order_edges(program), program.schedule.table
    lanes = [compile_lane(program, device) for device in range(2)]
    sent = _messages(lanes[0], "sends") | _messages(lanes[1], "sends")
    awaited = _messages(lanes[0], "waits") | _messages(lanes[1], "waits")
    assert len(edges) == 10
    assert sent == {edge.tag: str(table.op(edge.earlier)) for edge in edges}
    assert awaited == {edge.tag: str(table.op(edge.later)) for edge in edges}


def test_tags_of_messages_are_none_of_transfers_and_ascend_as_a_device_sends() -> None:
    program = _program()
    assert min(edge.tag for edge in order_edges(program)) == len(program.moves.reader)
    for device in range(2):
        lane = compile_lane(program, device)
        tags = [*_messages(lane, "sends")]
        assert tags == sorted(tags)
        expected = [post.tag for post in lane.first if post.buf.name in ("host", "back")]
        assert expected == sorted(_messages(lane, "waits"))


def test_pairs_of_devices_that_take_turns_have_channels() -> None:
    assert order_channels(_program()) == {Channel(0, 1, "after"), Channel(1, 0, "after")}
    plain = lower_for_running(build("1f1b", devices=2, microbatches=2))
    assert order_channels(plain) == set()
