"""One layout: its step is simulated with the times of kernels, and its memory added up."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

from penstock.arch.config import ModelConfig
from penstock.cluster.gpu import KEEP_SCORES
from penstock.core.schedule import Schedule
from penstock.core.scoreboard import Run
from penstock.cost.busiest_place import distinct_places
from penstock.cost.cell_cost import CellCost, refuse_in_cells
from penstock.cost.stage_workload import workload_for
from penstock.cost.workload import Workload
from penstock.errors import ShapeError
from penstock.estimate.cluster_links import cluster_links, hardware_of
from penstock.estimate.computed_again import keeps_attention, layers_computed_again
from penstock.estimate.host_room import fullest_host, room_on_host
from penstock.estimate.kept_costs import cost_request, kept_costs
from penstock.estimate.kernel_needs import kernel_needs
from penstock.estimate.layer_times import LayerTimes
from penstock.estimate.layout import BYTES_OF, TrainingLayout
from penstock.estimate.layout_cost import KINDS_OF_COMMUNICATION, LayoutCost
from penstock.estimate.measured_times import profiled_times
from penstock.estimate.memory_classes import DeviceMemory, device_memories
from penstock.estimate.refused import plain_norms, refuse_in_layout
from penstock.estimate.step_schedule import StepSchedule, step_schedule
from penstock.estimate.update_times import UpdateTimes
from penstock.estimate.utilisation import (
    token_flops,
    token_flops_again,
    token_flops_attending_again,
    token_flops_beside_attention_again,
)
from penstock.sim.play import play
from penstock.sim.timeline import busy_ticks


@dataclass(frozen=True)
class Estimate:
    """What a step of a layout takes."""

    layout: TrainingLayout
    seconds: float
    bubble: float
    """Share of the step in which a device neither computes nor waits for ranks of its cell; mean of
    all devices."""
    memory: tuple[DeviceMemory, ...]
    layers: tuple[int, ...] = ()
    """Of each stage."""
    works: tuple[float, ...] = ()
    """Seconds that each device works."""
    exposed: dict[str, float] = field(default_factory=dict)
    """Seconds that the step would be shorter by without a kind of communication."""
    host: int = 0
    """Bytes that wait on the host of a machine, where most do."""
    again: dict[int, Fraction] = field(default_factory=dict)
    """Layers that ops of their own compute again, of a token of sequences of each length."""
    attention_kept: bool = False
    """Whether all but attention is computed again."""

    @property
    def tokens_per_second(self) -> float:
        return self.layout.batch_tokens / self.seconds

    @property
    def flops_utilisation(self) -> float:
        """Of the peak, without what is computed again."""
        return self._mean_share(token_flops)

    @property
    def hardware_utilisation(self) -> float:
        """Of the peak, with what is computed again."""
        layout = self.layout
        if layout.attention_again:
            return self._mean_share(token_flops_attending_again)
        if self.attention_kept:
            return self._mean_share(token_flops_beside_attention_again)
        return self._mean_share(self._flops_again)

    def _flops_again(self, model: ModelConfig, tokens: int) -> int:
        """Of a token of such a sequence, with the layers that it goes through again."""
        inside = sum(min(count, self.layout.recompute.layers) for count in self.layers)
        return token_flops_again(model, tokens, inside + self.again.get(tokens, 0))

    def _mean_share(self, flops: Callable[[ModelConfig, int], int]) -> float:
        """With the FLOPs of a token of sequences as long as those of the batch."""
        lengths = [*map(sum, self.layout.lengths)] or [self.layout.tokens]
        every = sum(length * flops(self.layout.model, length) for length in lengths)
        return self._share(every / sum(lengths))

    def _share(self, flops_of_token: float) -> float:
        gpus, gpu = self.layout.cluster.gpus, self.layout.cluster.gpu
        peak = gpus * gpu.peak_of(self.layout.precision)
        return self.tokens_per_second * flops_of_token / peak

    @property
    def fits(self) -> bool:
        return not (self.lacks or self.host_lacks)

    @property
    def lacks(self) -> int:
        """Bytes that the fullest GPU has too few; 0 where it has enough."""
        most = max(each.total for each in self.memory)
        return max(0, most - self.layout.cluster.gpu.memory)

    @property
    def host_lacks(self) -> int:
        """The same of the fullest host."""
        return int(max(0.0, self.host - room_on_host(self.layout.cluster)))


def estimate(layout: TrainingLayout) -> Estimate:
    """Simulate a step of a layout, and once more without each kind of communication."""
    step = step_schedule(layout)
    cost = layout_cost(layout, step)
    found = _simulated(layout, step, cost)
    return replace(found, exposed=_exposed(step, cost, found.seconds))


def estimate_step(layout: TrainingLayout) -> Estimate:
    """The same without what is exposed, which takes more than half of the time."""
    return TimedStep.of(layout).estimate()


@dataclass(frozen=True)
class TimedStep:
    """A step of which it is known how long it takes, and no more: its memory takes as long to work
    out, and does not matter where it is too slow."""

    layout: TrainingLayout
    step: StepSchedule
    cost: LayoutCost
    played: tuple[Run, Fraction]

    @classmethod
    def of(cls, layout: TrainingLayout) -> "TimedStep":
        """Simulate a step of a layout."""
        step = step_schedule(layout)
        cost = layout_cost(layout, step)
        return cls(layout, step, cost, play(step.schedule, cost, "together"))

    @cached_property
    def seconds(self) -> float:
        return _seconds(*self.played)

    def estimate(self) -> Estimate:
        """The same as `estimate_step`."""
        return _estimated(self.layout, self.step, self.cost, self.played)


def _simulated(layout: TrainingLayout, step: StepSchedule, cost: LayoutCost) -> Estimate:
    return _estimated(layout, step, cost, play(step.schedule, cost, "together"))


def _seconds(done: Run, tick: Fraction) -> float:
    return float(int(done.end.max()) * tick)


def _estimated(
    layout: TrainingLayout, step: StepSchedule, cost: LayoutCost, played: tuple[Run, Fraction]
) -> Estimate:
    """What a simulated step says."""
    done, tick = played
    seconds = _seconds(done, tick)
    works = _busy(step, done, tick)
    return Estimate(
        layout,
        seconds,
        1 - sum(works) / len(works) / seconds,
        device_memories(layout, step, cost, done),
        cost.workload.layers,
        works,
        host=fullest_host(layout, step, cost),
        again=layers_computed_again(step, cost.workload.layers),
        attention_kept=keeps_attention(step.schedule),
    )


def _busy(step: StepSchedule, done: Run, tick: Fraction) -> tuple[float, ...]:
    """Seconds that each device works; strands of a pair overlap."""
    table, whole = step.schedule.table, [0] * step.schedule.shape.devices
    for lane, (first, end) in enumerate(pairwise(table.lane_start.tolist())):
        if table.lane_stream[lane] == "compute":
            ticks = busy_ticks(done.start[first:end], done.end[first:end])
            whole[table.lane_device[lane]] += ticks
    return tuple(float(ticks * tick) for ticks in whole)


def _exposed(step: StepSchedule, cost: LayoutCost, seconds: float) -> dict[str, float]:
    found = {}
    for kind in KINDS_OF_COMMUNICATION:
        if cost.uses(kind):
            free = replace(cost, free=frozenset({kind}))
            done, tick = play(step.schedule, free, "together")
            found[kind] = max(0.0, seconds - float(int(done.end.max()) * tick))
        else:
            found[kind] = 0.0
    return found


def layout_cost(layout: TrainingLayout, step: StepSchedule) -> LayoutCost:
    """The cost model of the rank of a layout that computes most. Where all ranks of a cell compute
    as much, schedules with as many layers on their stages have one in common."""
    model, size = layout.model, BYTES_OF[layout.precision]
    if model.element_bytes != size:
        model = replace(model, element_bytes=size)
    layers = _layers(layout, step, model)
    different = frozenset(step.unequal or (step.lengths,))
    places = distinct_places(model, different, layout.mesh.cell)
    shape = step.schedule.shape
    alone = bool(shape.weightless or step.unequal) or model.subsampling is not None
    if len(places) > 1 or alone:
        return _worked_out(layout, step, model, layers)
    kept = kept_costs(cost_request(layout), (shape.devices, shape.embed, shape.loss))
    key = (step.lengths, shape.microbatches, shape.stages, layers)
    if key not in kept:
        kept[key] = _worked_out(layout, step, model, layers)
    refuse_in_layout(layout, step.schedule)
    refuse_in_cells(step.schedule, kept[key].links)
    copies = replace(kept[key].copies, shard=layout.shard)
    return kept[key].among(copies, _owners(layout), step.schedule)


def _worked_out(
    layout: TrainingLayout, step: StepSchedule, model: ModelConfig, layers: tuple[int, ...]
) -> LayoutCost:
    shape = step.schedule.shape
    workload = workload_for(shape, model, step.microbatches, layers)
    workload = replace(workload, needs=kernel_needs(layout))
    return workload_cost(layout, step.schedule, workload, sliced=len(step.lengths) > 1)


def _owners(layout: TrainingLayout) -> int:
    """Ranks that share what a rank updates."""
    return 1 if layout.shard == "none" else layout.copies


def workload_cost(
    layout: TrainingLayout, schedule: Schedule, workload: Workload, *, sliced: bool
) -> LayoutCost:
    """The same for microbatches of any lengths; `sliced` where sequences are cut."""
    cluster, model = layout.cluster, workload.model
    refuse_in_layout(layout, schedule)
    peak = cluster.gpu.peak_of(layout.precision)
    kernels = (layout.attention, layout.fused_norm, layout.attention_again)
    times = LayerTimes(model, model, cluster.gpu, peak, *kernels)
    if cluster.gpu.measured:
        times = profiled_times(times, sliced=sliced)
    hardware = hardware_of(cluster, times)
    links = cluster_links(layout.mesh, layout.pipeline, hardware, cluster)
    rank = CellCost.on_mesh(workload, schedule, links, layout.shard)
    part, attended = rank.workload.part, rank.workload.attended
    mesh = layout.mesh
    times = replace(times, part=part, attended=attended, ring=mesh.ring, tensor=mesh.tensor)
    return LayoutCost(
        rank.workload,
        hardware,
        share=rank.share,
        links=links,
        copies=rank.copies,
        times=times,
        update=UpdateTimes(rank.workload, schedule.shape, _owners(layout), times.end_rate),
        kinds=schedule.table.kinds,
        rows=layout.rows,
        again=layout.recompute.layers,
        attention_again=layout.attention_again,
        plain_norms=plain_norms(layout),
        probabilities=model.element_bytes * (layout.attention in KEEP_SCORES),
    )


def _layers(layout: TrainingLayout, step: StepSchedule, model: ModelConfig) -> tuple[int, ...]:
    """Layers of each stage, as the layout says, else as the schedule is made for or as evenly as
    can be."""
    shape = step.schedule.shape
    if layout.tokens < layout.mesh.sequence:
        raise ShapeError(
            f"{layout.mesh.sequence} ranks share {layout.tokens} tokens",
            hint=f"set sequence to {layout.tokens} or less",
        )
    counts = layout.layers or shape.cut(model.layers)
    if shape.stages > model.layers and not counts:
        raise ShapeError(
            f"{shape.stages} stages share {model.layers} layers",
            hint="lower pipeline or chunks so that each stage has a layer",
        )
    return tuple(counts)
