"""Seconds and bytes of a step, whatever policy has made it.

Time is simulated with the cost model of an estimate, and memory is predicted as for a run before it
starts (plan/cell_memory.py), both for the same order of the same slices.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from penstock.arch.config import ModelConfig
from penstock.arch.layer_split import split_layers
from penstock.arch.mesh_shape import MeshShape
from penstock.cluster.cluster import Cluster
from penstock.cluster.gpu import Precision
from penstock.core.schedule import Schedule
from penstock.cost.cell_workload import rank_workload
from penstock.cost.copies import Shard
from penstock.cost.stage_workload import workload_for
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.policies.arranged import ArrangedStep
from penstock.estimate.policies.document_cost import cost_of_step
from penstock.estimate.step_schedule import step_of_batch
from penstock.plan.cell_memory import UNSHARED, SharedWeights
from penstock.plan.memory import footprints
from penstock.sim.play import play


class StepPrice(NamedTuple):
    """What a step takes."""

    seconds: float
    memory: int
    """Bytes of the rank that holds most, weights and optimizer included."""


@dataclass(frozen=True)
class PolicySetting:
    """What all policies that are compared have in common."""

    model: ModelConfig
    """With the bytes that its numbers have in the run."""
    cluster: Cluster
    """With a device for each rank."""
    mesh: MeshShape
    devices: int
    longest: int
    """Tokens of a sequence at most."""
    layers: tuple[int, ...] = ()
    """Of each stage; empty is as the schedule is made for, or even."""
    shard: Shard = "none"
    shared: SharedWeights = UNSHARED
    precision: Precision = "bf16"
    """Of the times."""
    fused_norm: bool = True

    def price(self, step: ArrangedStep) -> StepPrice:
        """Seconds and bytes of a step of one replica."""
        return StepPrice(self.seconds(step), self.memory(step))

    def seconds(self, step: ArrangedStep) -> float:
        layout = self.layout_for(step.schedule)
        whole = step_of_batch(step.schedule, layout, step.lengths)
        done, tick = play(whole, cost_of_step(layout, whole, step), "together")
        return float(int(done.end.max()) * tick)

    def memory(self, step: ArrangedStep) -> int:
        """Of the first rank of a cell, which has most where sizes do not divide."""
        lengths = step.lengths
        if step.groups:
            cell = self.mesh.sequence
            lengths = tuple((cell * tokens,) for tokens in step.fullest)
        workload = workload_for(step.schedule.shape, self.model, lengths, self.layers)
        found = footprints(
            step.schedule,
            rank_workload(workload, self.mesh.cell),
            owners=self.shared.owners,
            gathered=self.shared.gathered,
            states=self.shared.states,
            on_host=self.shared.on_host,
        )
        return max(device.total for device in found)

    def layout_for(self, schedule: Schedule) -> TrainingLayout:
        """The layout of an estimate, for the cost of steps in this order."""
        shape = schedule.shape
        counts = self.layers or shape.cut(self.model.layers)
        split = split_layers(self.model.layers, shape.stages, counts)
        return TrainingLayout(
            self.model,
            self.cluster,
            self.longest,
            self.longest * self.mesh.replicas,
            schedule.name,
            self.mesh,
            self.devices,
            layers=tuple(map(len, split)),
            shard=self.shard,
            fused_norm=self.fused_norm,
            precision=self.precision,
        )


def sized_for(cluster: Cluster, gpus: int) -> Cluster:
    """The cluster with so many devices; those of one machine where they are no whole machines."""
    if gpus % cluster.machine.gpus == 0:
        return replace(cluster, gpus=gpus)
    return replace(cluster, gpus=gpus, machine=replace(cluster.machine, gpus=gpus))


def mean_price(setting: PolicySetting, steps: Sequence[ArrangedStep]) -> StepPrice:
    """The mean time of some steps, and the most memory of one."""
    found = [setting.price(step) for step in steps]
    seconds = sum(each.seconds for each in found) / len(found)
    return StepPrice(seconds, max(each.memory for each in found))
