"""What the ranks of the tests' crew do over pairs of devices: NCCL's way, through gloo."""

import random
import threading
from collections.abc import Iterable, Sequence
from time import sleep
from unittest import mock

import torch
from torch import Tensor

from penstock.core.buffers import Buf
from penstock.core.program import Channel
from penstock.run.comm import group_pool
from penstock.run.comm import mesh as mesh_module
from penstock.run.comm.nccl import Nccl
from penstock.run.comm.transport import Arrival
from penstock.run.process.rendezvous import Connection
from penstock.run.program.calls import Post
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin
from run.jobs import CPU, batch_of, mesh_of

LONGEST = 60.0
"""Seconds after which a thread of a job is not waited for any more."""


def _post(peer: int, tag: int) -> Post:
    return Post(peer, tag, 0, 0, Buf("x", 0, 0, tag))


def _neighbours(connection: Connection) -> tuple[int, int]:
    """Who sends to this rank, and to whom it sends."""
    return (connection.rank - 1) % connection.world, (connection.rank + 1) % connection.world


def _ring(connection: Connection, *payloads: str) -> list[Channel]:
    world = connection.world
    return [Channel(a, (a + 1) % world, name) for a in range(world) for name in payloads]


def _both_ways(connection: Connection, *payloads: str) -> list[Channel]:
    there = _ring(connection, *payloads)
    return [*there, *(Channel(c.target, c.source, c.payload) for c in there)]


def _opened(connection: Connection, channels: Iterable[Channel]) -> Nccl:
    transport = Nccl(mesh_of(1, connection.world), CPU)
    transport.open(channels)
    return transport


def _content(sender: int, tag: int, turn: int = 0) -> Tensor:
    """Of a size that depends on the tag, so that no other transfer could be taken for it."""
    return torch.full((3 + tag,), 1000.0 * sender + 50.0 * turn + tag)


def opposite_orders(connection: Connection, tags: int) -> list[float]:
    """Each rank sends in one order and takes in the other, one transfer after the other: it asks
    for the next only when it has the last."""
    transport = _opened(connection, _ring(connection, "x", "g"))
    before, after = _neighbours(connection)
    for tag in range(tags):
        transport.send(_post(after, tag), _content(connection.rank, tag))
    found = []
    for tag in reversed(range(tags)):
        landing = torch.full_like(_content(before, tag), float("nan"))
        transport.receive(_post(before, tag), landing).wait()
        found.append(float(landing.mean()))
    transport.drain()
    transport.close()
    return found


def random_orders(connection: Connection, seed: int, tags: int, slots: int, turns: int) -> int:
    """Both neighbours in both directions, random orders and delays, few slots; the same tags in
    every turn. Returns how many transfers brought what they should."""
    transport, good = _opened(connection, _both_ways(connection, "x", "g")), list[bool]()

    def send(peer: int, turn: int) -> None:
        chance = random.Random(f"{seed} {turn} {connection.rank} {peer} sends")
        for tag in chance.sample(range(tags), tags):
            sleep(chance.choice([0, 0, 0.001]))
            transport.send(_post(peer, tag), _content(connection.rank, tag, turn))

    def receive(peer: int, turn: int) -> None:
        chance = random.Random(f"{seed} {turn} {connection.rank} {peer} receives")
        to_come, posted = chance.sample(range(tags), tags), list[tuple[int, Tensor, Arrival]]()
        while to_come or posted:
            while to_come and len(posted) < slots:
                tag = to_come.pop()
                landing = torch.full_like(_content(peer, tag), float("nan"))
                posted.append((tag, landing, transport.receive(_post(peer, tag), landing)))
            tag, landing, arrival = posted.pop(chance.randrange(len(posted)))
            arrival.wait()
            good.append(torch.equal(landing, _content(peer, tag, turn)))

    for turn in range(turns):
        works = [(work, peer) for work in (send, receive) for peer in _neighbours(connection)]
        threads = [threading.Thread(target=work, args=(peer, turn)) for work, peer in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONGEST)
        transport.drain()
    transport.close()
    return sum(good)


def given_up(connection: Connection) -> list[float]:
    """A transport that is closed while it waits, with everything announced; then another one on
    the same groups, with the same tags."""
    channels, (before, after) = _ring(connection, "x"), _neighbours(connection)
    stale = _opened(connection, channels)
    lost = torch.zeros(4)
    stale.receive(_post(before, 1), lost)
    stale.send(_post(after, 0), _content(99, 0))
    stale.close()
    transport = _opened(connection, channels)
    landed = [torch.zeros_like(_content(before, tag)) for tag in range(2)]
    arrivals = [transport.receive(_post(before, tag), landed[tag]) for tag in range(2)]
    for tag in range(2):
        transport.send(_post(after, tag), _content(connection.rank, tag))
    for arrival in arrivals:
        arrival.wait()
    transport.drain()
    transport.close()
    return [float(tensor.mean()) for tensor in (*landed, lost)]


def groups_made(connection: Connection, payloads: Sequence[str]) -> list[int]:
    """How many groups are made by opening channels of these payloads one after the other, each in
    both directions of a ring."""
    made, make_group = list[int](), group_pool.make_group
    with (
        mock.patch.object(mesh_module, "GROUP_POOL", group_pool.GroupPool()),
        mock.patch.object(group_pool, "make_group", wraps=make_group) as making,
    ):
        mesh = mesh_module.make_mesh(1, connection.world)
        making.reset_mock()
        transport = Nccl(mesh, CPU)
        for name in payloads:
            transport.open(_both_ways(connection, name))
            made.append(making.call_count)
    transport.close()
    return made


def threads_left(connection: Connection) -> int:
    """How many more threads there are after a transport has been used and closed."""
    before = threading.active_count()
    opposite_orders(connection, 3)
    return threading.active_count() - before


def trained_over_pairs(connection: Connection, plan: StepPlan, steps: int) -> list[float]:
    """Losses of evaluations and steps, by two engines one after the other on one mesh."""
    mesh, found = mesh_of(1, plan.layout.devices), list[float]()
    for _ in range(2):
        engine = Engine(plan, mesh, Nccl(mesh, CPU), adam=AdamW(), device=CPU)
        begin(engine, 1)
        for step in range(steps):
            batch = batch_of(plan, step)
            found += [engine.evaluate([batch]), engine.step(batch, 0.01).loss]
        engine.close()
    return found
