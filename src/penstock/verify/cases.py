"""What is verified: each schedule once under each variant.

No schedule is known by name. The preferred request among those that a record accepts is searched,
so that a new schedule is covered as soon as it is registered.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product

from penstock.arch.block_rules import refuse_cut
from penstock.arch.cell_shape import ONE_RANK
from penstock.arch.lora import refuse_sharded_target
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.run.program.layout import on_shards, refuse_experts
from penstock.run.program.unsupported import refuse_subsampling, why_not
from penstock.schedules import Case, Spec
from penstock.verify.variants import VARIANTS, Trial, Variant


@dataclass(frozen=True)
class CaseSizes:
    """Sizes of requests, the preferred ones first."""

    devices: Sequence[int] = (4, 3, 2, 1)
    microbatches: Sequence[int] = (8, 4, 16, 2, 6, 12, 3, 5, 7, 1)
    slices: Sequence[int] = (4, 2, 8, 3, 1)
    chunks: Sequence[int | None] = (None, 1, 2, 3, 4)
    """None is the number that the schedule has or prefers."""
    options: Mapping[str, str] = field(default_factory=dict)

    def accepted(self, spec: Spec) -> Iterator[Case]:
        """Requests that a schedule accepts, in the order of preference."""
        slices = self.slices if spec.sliced else (None,)
        chunks = self.chunks if spec.chunks is None else (None,)
        for p, m, k, v in product(self.devices, self.microbatches, slices, chunks):
            with suppress(ShapeError):
                yield spec.case(p, m, v, k, self.options)


ANY_SIZES = CaseSizes()


def smallest(spec: Spec, sizes: CaseSizes = ANY_SIZES) -> Case:
    """The preferred request among those that a schedule accepts."""
    found = next(sizes.accepted(spec), None)
    if found is None:
        raise ShapeError(
            f"{spec.name} accepts none of the sizes that are tried", hint=f"tried: {sizes}"
        )
    return found


def half(spec: Spec, case: Case, options: Mapping[str, str]) -> Case | None:
    """A request for half the devices, if the schedule accepts one.

    Half the microbatches too, if it can be: then two replicas work on the same batch as the whole.
    """
    if case.p % 2:
        return None
    batches = (max(case.m // 2, 1), case.m, *CaseSizes.microbatches)
    sizes = CaseSizes((case.p // 2,), batches, (case.k,), (case.v,), options)
    return next(sizes.accepted(spec), None)


def trials_by_name(
    spec: Spec, variants: Sequence[Variant] = VARIANTS, sizes: CaseSizes = ANY_SIZES
) -> tuple[list[Trial], list[str]]:
    """A registered schedule under every variant, and notes on what is not run."""
    case = smallest(spec, sizes)
    schedule = spec.build(case)
    if reason := why_not(schedule):
        return [], [f"note: {spec.name}: not run, {reason}"]
    halved = half(spec, case, {})
    return trials_of(schedule, spec.build(halved) if halved else None, variants)


def trials_of(
    schedule: Schedule, halved: Schedule | None, variants: Sequence[Variant] = VARIANTS
) -> tuple[list[Trial], list[str]]:
    """The schedule under every variant, and a note on each variant that it cannot meet.

    `halved` is the schedule at half the depth, of which two replicas are run, or cells of two.
    """
    trials: list[Trial] = []
    notes: list[str] = []
    for variant in variants:
        base = halved if variant.halved else schedule
        if base is None:
            notes.append(f"note: {schedule.name} {variant.name}: left out, no half of the devices")
            continue
        try:
            trials.append(_runnable(variant.trial(base)))
        except ShapeError as error:
            notes.append(f"note: {schedule.name} {variant.name}: left out, {error.message}")
    return trials, notes


def _runnable(trial: Trial) -> Trial:
    """The trial, refused where its schedule cannot run its model."""
    shape, model = trial.schedule.shape, trial.work.model
    refuse_experts(model, cut=bool(shape.weightless), on_shards=on_shards(shape))
    refuse_sharded_target(model.lora, shape.loss != "F")
    if shape.weightless:
        refuse_cut(model)
    refuse_subsampling(model, trial.schedule, trial.cell)
    return trial


def one_process(trial: Trial) -> Trial:
    """The same work on one device: microbatch after microbatch, all layers in one stage.

    The batches of replicas are done one after the other.
    """
    slices = trial.schedule.shape.slices * trial.replicas
    lane = [
        op
        for mb, count in enumerate(slices)
        for op in (
            *(("F", 0, mb, slice) for slice in range(count)),
            *(("B", 0, mb, slice) for slice in reversed(range(count))),
        )
    ]
    schedule = Schedule.of("one process", Shape(1, 1, slices), [lane])
    return replace(
        trial,
        schedule=schedule,
        layers=(trial.work.model.layers,),
        lengths=trial.lengths * trial.replicas,
        replicas=1,
        cell=ONE_RANK,
        shard="none",
        groups=(),
    )
