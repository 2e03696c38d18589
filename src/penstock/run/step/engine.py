"""One rank's part of a run: its stages, their weights and optimizers, and a step over a batch.

The loss is the mean over all labels that count in the global batch, whatever the schedule, the
slices, the packing or the number of replicas: the count is agreed before the first forward, and
every gradient is that of loss sum / count. The layout is fixed; the step plan may be another one in
every step.
"""

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from resource import RUSAGE_SELF, getrusage
from typing import Any

import torch

from penstock.core.buffers import ALL
from penstock.core.ops import STAGE_KINDS, Op, home_number
from penstock.core.program import Program
from penstock.data.batch import Microbatch
from penstock.errors import RunError
from penstock.model.attention.piece import Piece
from penstock.run.comm.collective import add_up
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.transport import Transport
from penstock.run.execute.executor import Executor
from penstock.run.execute.handlers.offload import HostRoom
from penstock.run.execute.observer import Observer, Quiet
from penstock.run.execute.spans import clock_of
from penstock.run.host.tier import HostTier
from penstock.run.program.calls import Join
from penstock.run.program.order_messages import order_channels
from penstock.run.program.rotation import Rotation, rotation_of
from penstock.run.program.step_end import with_host_updates
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.agreement import agree_on_plan
from penstock.run.step.batch_pieces import count_labels, in_step, own_pieces
from penstock.run.step.former_step import FORMER, FormerStep, Unconfirmed, left_totals
from penstock.run.step.full_sharding import BufferPool, FullShards, StageGather
from penstock.run.step.groups import connect_devices, make_holder_groups, make_token_groups
from penstock.run.step.held_weights import held_weights
from penstock.run.step.helping import helping_of
from penstock.run.step.host_room import host_room
from penstock.run.step.host_state import host_weights, optimizer_on, refuse_host_stages
from penstock.run.step.kept_executors import KeptExecutors
from penstock.run.step.losses import refuse_unlabelled, sum_losses
from penstock.run.step.optimizer import AdamW, NoUpdate
from penstock.run.step.outcome import Outcome, Totals
from penstock.run.step.programs import Programs
from penstock.run.step.shard_sums import ShardSums
from penstock.run.step.sharding import ReplicatedOptimizer, Sharding
from penstock.run.step.stage_end import Rate, StageEnd
from penstock.run.step.stages import boundary_of, home_views, stages_on, weightless_stages
from penstock.run.step.validation import validation_named
from penstock.run.watchdog.position import Tracker


class Engine:
    """Trains one rank's stages, step by step."""

    def __init__(
        self,
        plan: StepPlan,
        mesh: Mesh,
        transport: Transport,
        *,
        adam: AdamW | NoUpdate,
        device: torch.device,
        sharding: Sharding | None = None,
    ) -> None:
        self.layout, self.mesh, self.transport = plan.layout, mesh, transport
        self.adam, self.device, self.sharding = adam, device, sharding or ReplicatedOptimizer()
        self.validation = validation_named(adam.validation)
        refuse_host_stages(adam.host_stages, self.layout, self.sharding)
        self.sharding.groups(mesh)
        self._norms = self.validation.norms(mesh)
        self.cell = mesh.cell(self.layout.cell)
        mine, at = self.layout.stages_of(mesh.device), (device, self.cell)
        self._shard_sums = ShardSums.on(mesh, device) if self.layout.on_shards else None
        self.stages = stages_on(self.layout, mine, *at)
        away = host_weights(self.layout, mesh, adam.host_stages, device)
        self.weights = held_weights(plan, mesh, self.sharding, device, away)
        self.owners = max((weights.own.of for weights in self.weights.values()), default=1)
        """Ranks that share the optimizer's work for a stage."""
        self.optimizers = {s: optimizer_on(adam, self.weights[s], away.get(s)) for s in mine}
        make_holder_groups(self.layout, mesh)
        self.tracker = Tracker()
        """Told where this rank is beside its lane; nobody asks this one."""
        self._rate = Rate()
        self.working: dict[int, Any] = {**weightless_stages(self.layout, *at), **self.stages}
        """Stages and shards that ops of this device work with, by number."""
        self.ends = {stage: self._stage_end(stage) for stage in mine}
        self._former = FormerStep(self.ends.values())
        self.pool = BufferPool(self.stages, self.weights)
        """Buffers of whole stages, where a rank keeps only ranges of them."""
        self.host = HostTier(device)
        self._homes = {} if self.sharding.buffers else home_views(self.stages, self.weights)
        self.whole_gradients = {s: self.weights[s].grad for s in mine if self._homes}
        """Of each stage; where ranks share gradients, what `gradients` has brought together."""
        self._observer: Observer = Quiet()
        end = with_host_updates(self.validation.end, adam.host_stages)
        self.programs = Programs(mesh.replicas, self.sharding.buffers, end)
        self._executors = KeptExecutors()
        self.use(plan)

    def use(self, plan: StepPlan) -> None:
        """Take this plan from here on; all ranks do so before the same step."""
        self.settle()
        if plan.layout != self.layout:
            raise RunError(
                "a step plan of another layout than the run's",
                hint="make plans with the layout that the run was started with",
            )
        known = self._executors.find(order := plan.schedule.digest)
        program = known.program if known else self.programs.of(plan)
        with self.tracker.gathers("agree on the plan of the step"):
            agree_on_plan(plan, program.schedule, self.mesh)
        self.host.pool.grow(host_room(plan, self.mesh))
        self.plan, self._sharers = plan, make_token_groups(plan, self.mesh, self.device)
        self.executor = known or self._executors.keep(order, self._prepare(program))
        self.executor.forget_sizes()
        self.executor.observer = self._observer
        self._follow()

    def tell(self, tracker: Tracker) -> None:
        """Keep a tracker up to date from here on."""
        self.executor.observer = self._observer = self.tracker = tracker
        self._follow()

    def step(self, batch: Sequence[Microbatch], rate: float) -> Outcome:
        """Train on one global batch, of which `batch` is this replica's part; when it returns, the
        step is settled."""
        return [*self.advance(batch, rate), *self.finish()][-1]

    def advance(self, batch: Sequence[Microbatch], rate: float) -> list[Outcome]:
        """The same, where updates are validated later without waiting for that; returns the
        outcomes of steps that are settled now: of this one, or of the one before."""
        labels = self._count(batch)
        refuse_unlabelled("the global batch", labels)
        self._rate.learning_rate = rate
        self.executor.step(self._begin(batch, labels))
        totals = self._totals()
        if self.executor.left:
            self._former.leave(Unconfirmed(totals, replace(self._rate), labels))
        else:
            self._former.outcomes.append(Outcome.of(totals(), labels))
        return self._former.take()

    def finish(self) -> list[Outcome]:
        """Validate the last step, if nobody has done so; returns outcomes that nobody has
        been told. All ranks do so together, before anybody looks at weights."""
        self.settle()
        return self._former.take()

    def settle(self) -> None:
        """The same, and keep the outcome for whoever advances or finishes next."""
        self._former.settle()

    def gradients(self, batch: Sequence[Microbatch]) -> Outcome:
        """The gradients of one global batch, complete on every rank, without the update."""
        self.settle()
        labels = self._count(batch)
        self.executor.gradients(self._begin(batch, labels))
        for stage, weights in self.weights.items():
            self.whole_gradients[stage] = self.sharding.complete(weights, self.mesh)
        return Outcome.of(self._totals()(), labels)

    def evaluate(self, batches: Iterable[Sequence[Microbatch]]) -> float:
        """The mean loss over some batches, forward only."""
        self.settle()
        total, labels = 0.0, 0
        for batch in batches:
            labels += self._count(batch)
            losses = self.executor.evaluate(self._pieces(batch, 1))
            self.tracker.at = "evaluates"
            with self.tracker.gathers("evaluate"):
                add_up(loss := sum_losses(losses), self.mesh.world)
            total += float(loss)
        refuse_unlabelled("the evaluation", labels)
        return total / labels

    def busy_seconds(self) -> float:
        """Time that the ops of the last step took on this device."""
        return self.executor.spans.seconds()

    def lane_seconds(self) -> float:
        """Time from the start of the last step's first op on this device to the end of its last."""
        return self.executor.spans.extent()

    def peak_bytes(self) -> int:
        """Most memory of this process so far: what the GPU gave out, or what is resident."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return getrusage(RUSAGE_SELF).ru_maxrss * 1024

    def release(self) -> None:
        """Give back the memory of weights, gradients and moments; no step can follow."""
        self._executors.close()
        del self.executor
        for held in (self._executors, self._homes, self.ends, self.working):
            held.clear()
        for of_stage in (self.stages, self.weights, self.optimizers, self.whole_gradients):
            of_stage.clear()
        self.pool.clear()
        gc.collect()  # an executor and its streams know each other

    def close(self) -> None:
        """End what works at the side."""
        self._executors.close()
        self.transport.close()

    def _prepare(self, program: Program) -> Executor:
        """Compile a plan that all ranks agree on, with the channels and groups that it needs."""
        rotation = rotation_of(program.schedule, self.mesh.device)
        self.pool.grow(rotation)
        self.transport.open({*program.channels, *order_channels(program)})
        connect_devices(self.layout, self.mesh, self.device)
        executor = Executor(
            program,
            self.mesh.device,
            partial(self._subject, rotation, dict(program.schedule.shares)),
            transport=self.transport,
            boundary=boundary_of(self.layout, self.device, self.cell),
            homes={**self._homes, **self.pool.homes(rotation), FORMER: self._former},
            sums=self._add_up,
        )
        executor.clock = clock_of(self.device)
        executor.helper = helping_of(self.layout, self.device, self.cell)
        return executor

    def _subject(self, rotation: Rotation, shares: Mapping[Op, Fraction], op: Op) -> Any:
        """What an op works with; collectives with their buffer, copies with room on the host."""
        stage, sharding = op.stage, self.sharding
        if op.kind in "OL":
            return HostRoom.of(self.host, shares, op)
        if op.kind == "G" and isinstance(sharding, FullShards):
            whole = self.pool.part(rotation, "weight", stage, rotation.weight[op])
            return StageGather(sharding, self.weights[stage], whole, self.mesh)
        if op.kind == "Z" and op in rotation.dw:
            gradient = self.pool.part(rotation, "dw", stage, rotation.dw[op])
            return replace(self.ends[stage], gradient=gradient)
        if op.kind in STAGE_KINDS:
            return self.ends[stage]
        return self.working[home_number(op, self.layout.stages)]

    def _stage_end(self, stage: int) -> StageEnd:
        last = stage == self.layout.loss_home
        return StageEnd(
            self.weights[stage],
            self.mesh,
            self.layout.names,
            self.layout.model.tied,
            self.optimizers[stage],
            self._rate,
            self.adam.clip,
            (lambda: self.executor.losses) if last else (lambda: ()),
            self.sharding,
            self.weights[stage].grad,
            self.layout.cell.parted,
            self.validation.copy(self.weights[stage], self.optimizers[stage]),
        )

    def _add_up(self, join: Join, parts: list[Any]) -> Any:
        """What devices have together; loss and norm are the same for all replicas."""
        if self._shard_sums is not None and join.buf.number == ALL:
            return self._shard_sums.of(parts[0])
        total, *others = parts
        for other in others:
            total.add_(other)
        whole = join.buf.name == "norm"
        add_up(total, self._norms if whole else self.mesh.among(join.members))
        return total

    def _follow(self) -> None:
        ranks = self.mesh.ranks_of(self.mesh.replica)
        self.tracker.follow(self.executor.lane, ranks.__getitem__)

    def _begin(self, batch: Sequence[Microbatch], labels: int) -> list[Piece]:
        self.host.reset()
        if self._former.step is None:  # gradients of a step that is not settled are needed still
            for weights in self.weights.values():
                weights.grad.zero_()
        self._rate.scale = 1 / max(labels, 1)
        pieces = self._pieces(batch, labels)
        return in_step(pieces, self.plan, self.optimizers.values(), self.mesh)

    def _pieces(self, batch: Sequence[Microbatch], labels: int) -> list[Piece]:
        return own_pieces(self.plan, batch, labels, self.device, self.cell, self._sharers)

    def _count(self, batch: Sequence[Microbatch]) -> int:
        """Labels that count in the global batch."""
        with self.tracker.gathers("count their labels"):
            return count_labels(batch, self.mesh)

    def _totals(self) -> Callable[[], Totals]:
        """What the pass that has ended came to, for whoever wants to wait for it."""
        self.tracker.at = "ends its step"
        return partial(left_totals, self.tracker, self.executor.left, self.executor.totals)
