"""What the ranks of the tests' crew do: each is called on all four of them."""

import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from time import perf_counter_ns
from typing import NamedTuple
from unittest import mock

import torch
from torch import Tensor, distributed
from torch.utils._python_dispatch import _disable_current_modes

from penstock.arch.cell_shape import ONE_RANK, CellShape
from penstock.core.buffers import Buf
from penstock.core.program import Channel
from penstock.data.batch import IGNORE, Microbatch
from penstock.errors import RunError
from penstock.run.comm import group_pool
from penstock.run.comm.collective import add_up
from penstock.run.comm.gloo import Gloo, Staged
from penstock.run.comm.mesh import Mesh, make_mesh
from penstock.run.comm.nccl import Nccl
from penstock.run.comm.transport import Arrival, Transport
from penstock.run.execute.observer import Quiet
from penstock.run.observe import measured_timeline
from penstock.run.observe.inspected_step import StepLook, look_at_step
from penstock.run.process.rendezvous import Connection
from penstock.run.program.calls import Call, Post
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import build_engine, transport_for
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.outcome import Outcome
from penstock.run.step.state import begin, entries, held

CPU = torch.device("cpu")


def batch_of(plan: StepPlan, seed: int = 0, replicas: int = 1) -> list[Microbatch]:
    """Random sequences of a plan's lengths; the last label of each does not count."""
    numbers = torch.Generator().manual_seed(seed)
    found = []
    for lengths in plan.lengths * replicas:
        size = plan.rows, sum(lengths)
        tokens = torch.randint(plan.layout.model.vocabulary, size, generator=numbers)
        labels = tokens.roll(-1, 1)
        labels[:, -1] = IGNORE
        found.append(Microbatch(tokens, labels, ((0,),) * plan.rows))
    return found


def mesh_of(replicas: int, devices: int, cell: CellShape = ONE_RANK) -> Mesh:
    return make_mesh(replicas, devices, cell)


@contextmanager
def engine_of(plan: StepPlan, replicas: int = 1) -> Iterator[Engine]:
    """The engine of this rank, with its initial weights."""
    mesh = mesh_of(replicas, plan.layout.devices, plan.layout.cell)
    engine = Engine(plan, mesh, transport_for(mesh, CPU), adam=AdamW(), device=CPU)
    begin(engine, 1)
    try:
        yield engine
    finally:
        engine.close()


def looked(connection: Connection, plan: StepPlan, replicas: int) -> StepLook | None:
    """A look at a step; at the first device of each replica."""
    with engine_of(plan, replicas) as engine:
        return look_at_step(engine, batch_of(plan))


def looked_in_cells(connection: Connection, plan: StepPlan) -> StepLook | None:
    """A look at a step of cells; at the first rank."""
    with closing(build_engine(plan, 1, AdamW(), CPU)) as engine:
        begin(engine, 1)
        return look_at_step(engine, batch_of(plan))


class Clearing:
    """A transport whose messages leave at once, so that what waits for a slow receiver is not
    counted with what a device holds for itself."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def open(self, channels: Iterable[Channel]) -> None:
        self._inner.open(channels)

    def send(self, post: Post, tensor: Tensor) -> None:
        with _disable_current_modes():
            self._inner.send(post, tensor.clone())

    def receive(self, post: Post, tensor: Tensor) -> Arrival:
        return self._inner.receive(post, tensor)

    def drain(self) -> None:
        self._inner.drain()

    def close(self) -> None:
        self._inner.close()


def clear_at_once(engine: Engine) -> None:
    """Let what the engine sends leave at once."""
    engine.executor.take(Clearing(engine.transport))


def looked_without_waits(connection: Connection, plan: StepPlan, replicas: int) -> StepLook | None:
    """A look at a step whose memory does not depend on how late the receivers are."""
    with engine_of(plan, replicas) as engine:
        clear_at_once(engine)
        return look_at_step(engine, batch_of(plan))


class Learnt(NamedTuple):
    """Some steps of training, as one rank has seen them."""

    outcomes: list[Outcome]
    held: dict[str, Tensor]
    first_norm: float


def trained(connection: Connection, plan: StepPlan, replicas: int, steps: int) -> Learnt:
    """Train on batches of which each replica takes its share."""
    with engine_of(plan, replicas) as engine:
        share = len(plan.lengths)
        first = engine.mesh.replica * share
        outcomes = []
        for step in range(steps):
            batch = batch_of(plan, step, replicas)[first : first + share]
            outcomes.append(engine.step(batch, 0.01))
        weights = {name: block.tensor.clone() for name, (block,) in held(engine).items()}
        return Learnt(outcomes, weights, outcomes[0].norm)


class Turns(Quiet):
    """Writes down the calls that the main thread has done."""

    def __init__(self) -> None:
        self.ran_calls: list[str] = []

    def ran(self, call: Call) -> None:
        self.ran_calls.append(str(call.op))


class Reduced(NamedTuple):
    """A step over two replicas: its ops in host order, those of the main thread, and gradients."""

    calls: list[tuple[str, str]]
    """Op and stream."""
    main: list[str]
    gradients: dict[str, Tensor]


def reduced(connection: Connection, plan: StepPlan) -> Reduced:
    """What a device of two replicas does, in order."""
    share = len(plan.lengths)
    with engine_of(plan, 2) as engine:
        first = engine.mesh.replica * share
        engine.executor.observer = turns = Turns()
        engine.gradients(batch_of(plan, 0, 2)[first : first + share])
        own = [entry for entry in entries(engine) if not entry.copy]
        found = {entry.name: entry.grad.clone() for entry in own}
        calls = [(str(call.op), call.stream) for call in engine.executor.spans.calls]
        return Reduced(calls, turns.ran_calls, found)


class Placed(NamedTuple):
    """A rank's place in a mesh."""

    replica: int
    device: int
    members: list[list[int] | None]


def place_in(connection: Connection, replicas: int, devices: int) -> Placed:
    """Who this rank is, and the global ranks of its groups."""
    mesh = mesh_of(replicas, devices)
    groups = (mesh.pipeline, mesh.copies, mesh.among((0, devices - 1)), mesh.world)
    members = [distributed.get_process_group_ranks(g) if g else None for g in groups]
    return Placed(mesh.replica, mesh.device, members)


def groups_of_two_meshes(connection: Connection, replicas: int, devices: int) -> tuple[bool, int]:
    """Whether two meshes have the same groups, and how many the second has made."""
    first, make_group = make_mesh(replicas, devices), group_pool.make_group
    with mock.patch.object(group_pool, "make_group", wraps=make_group) as making:
        second = make_mesh(replicas, devices)
    groups = [(mesh.pipeline, mesh.copies) for mesh in (first, second)]
    return groups[0] == groups[1], making.call_count


def refused_mesh(connection: Connection, replicas: int, devices: int) -> str:
    try:
        make_mesh(replicas, devices)
    except RunError as error:
        return error.message
    return ""


def summed(connection: Connection) -> tuple[float, float]:
    """A sum over all, and a sum with nobody."""
    mine = torch.tensor([connection.rank + 1.0])
    add_up(mine, distributed.group.WORLD)
    alone = torch.tensor([5.0])
    add_up(alone, None)
    return float(mine), float(alone)


def offsets_found(connection: Connection, skews: Sequence[int]) -> list[int]:
    """The offsets of the clocks, of which each rank's is wrong by its skew."""

    def skewed() -> int:
        return perf_counter_ns() + skews[connection.rank]

    with mock.patch.object(measured_timeline, "perf_counter_ns", skewed):
        return measured_timeline._offsets(distributed.group.WORLD)


def looked_with_wrong_clocks(
    connection: Connection, plan: StepPlan, skews: Sequence[int]
) -> StepLook | None:
    """A look by ranks that stand on different machines whose clocks disagree."""
    skew = skews[connection.rank]

    def skewed() -> int:
        return perf_counter_ns() + skew

    with (
        engine_of(plan) as engine,
        mock.patch.object(measured_timeline, "perf_counter_ns", skewed),
        mock.patch.object(measured_timeline, "_boot", return_value=str(connection.rank)),
    ):
        engine.executor.clock = skewed
        return look_at_step(engine, batch_of(plan))


def exchanged(connection: Connection, kind: str, messages: int) -> list[list[float]]:
    """Every rank sends to the next and gets from the one before, in two channels; what arrived."""
    transport = _transport_of(connection, kind)
    rank, world = connection.rank, connection.world
    after, before = (rank + 1) % world, (rank - 1) % world
    landed: dict[int, Tensor] = {}
    arrivals = {}
    for number in range(messages):
        for name in ("x", "g"):
            tag = 2 * number + (name == "g")
            landed[tag] = torch.full((3,), float("nan"))
            post = Post(before, tag, 0, 0, Buf(name, 0, 0, number))
            arrivals[tag] = transport.receive(post, landed[tag])
    for name in ("g", "x"):
        for number in range(messages):
            tag = 2 * number + (name == "g")
            post = Post(after, tag, 0, 0, Buf(name, 0, 0, number))
            transport.send(post, torch.full((3,), 100.0 * rank + tag))
    for arrival in arrivals.values():
        arrival.wait()
    transport.drain()
    transport.close()
    return [landed[tag].tolist() for tag in sorted(landed)]


def _transport_of(connection: Connection, kind: str) -> Transport:
    world = distributed.group.WORLD
    if kind == "nccl":  # its ends and announcements, through gloo
        transport = Nccl(mesh_of(1, connection.world), CPU)
        count = connection.world
        transport.open(
            Channel(a, (a + 1) % count, name) for a in range(count) for name in ("x", "g")
        )
        return transport
    return Staged(world) if kind == "staged" else Gloo(world)


def let_go(connection: Connection, kind: str) -> bool:
    """Whether a tensor that was sent and received is freed without another send."""
    transport = _transport_of(connection, kind)
    rank, world = connection.rank, connection.world
    landed = torch.empty(1000)
    arrival = transport.receive(Post((rank - 1) % world, 0, 0, 0, Buf("x", 0, 0, 0)), landed)
    sent = torch.ones(1000)
    gone = weakref.ref(sent)
    transport.send(Post((rank + 1) % world, 0, 0, 0, Buf("x", 0, 0, 0)), sent)
    del sent
    arrival.wait()
    transport.drain()
    transport.close()
    del transport
    return gone() is None


def built(connection: Connection, plan: StepPlan, replicas: int) -> tuple[str, str, float]:
    """The kind of transport that suits, the engine's device, and the loss of a step."""
    engine = build_engine(plan, replicas, AdamW(), CPU)
    begin(engine, 1)
    outcome = engine.gradients(batch_of(plan))
    engine.close()
    return type(engine.transport).__name__, str(engine.device), outcome.loss
