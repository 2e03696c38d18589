"""DocumentBatches of documents as steps, by each policy: what a run does, without tokens."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from penstock.core.schedule import Schedule
from penstock.estimate.policies.arranged import ArrangedStep, grouped_step, sliced_step
from penstock.plan.ragged_batch import OrderedBatch, RaggedBatches, SliceRule
from penstock.plan.sequence_groups.batch import GroupedBatch
from penstock.plan.sequence_groups.order import ScheduleOfSize, accepted_order, run_order
from penstock.plan.slice_choice import choose_rule
from penstock.schedules import Spec

DocumentBatches = Sequence[Sequence[int]]
"""Lengths of the documents of some batches."""
StepFits = Callable[[ArrangedStep], bool]
PlanGroups = Callable[[Sequence[int]], GroupedBatch]
"""The groups for documents of these lengths."""


class SlicedSteps(NamedTuple):
    """Steps in slices, and the rule that they were cut by."""

    rule: SliceRule
    steps: list[ArrangedStep]


def sliced_steps(
    base: RaggedBatches, given: SliceRule, batches: DocumentBatches, fits: StepFits
) -> SlicedSteps:
    """Batches cut by the rule that is given; what it leaves open, as 0, is chosen for them."""

    def has_room(batch: OrderedBatch) -> bool:
        return fits(sliced_step(batch))

    rule = given
    if not all(given):
        rule = choose_rule(base, batches, has_room, **given._asdict()).rule
    ragged = replace(base, rule=rule)
    return SlicedSteps(rule, [sliced_step(ragged.order(lengths)) for lengths in batches])


def grouped_steps(
    batches: DocumentBatches, plan: PlanGroups, order: ScheduleOfSize, devices: int
) -> list[ArrangedStep]:
    """Batches on groups of the ranks of a device, as they are planned."""
    found = []
    for lengths in batches:
        ordered = run_order(plan(lengths), devices)
        found.append(grouped_step(accepted_order(order, len(ordered)), lengths, ordered))
    return found


def whole_orders(spec: Spec, devices: int) -> ScheduleOfSize:
    """The order of a schedule for microbatches that are not cut, by their number."""

    def order(microbatches: int) -> Schedule:
        options = {"groups": one_slice_each(microbatches)} if spec.ragged else {}
        return spec.build(spec.case(devices, microbatches, options=options))

    return order


def one_slice_each(microbatches: int) -> str:
    """What a schedule for sequences of any lengths is told where none is cut.

    >>> one_slice_each(3)
    '1,1,1'
    """
    return ",".join("1" * microbatches)
