"""What each policy makes of a corpus, and what its steps take: the rows of `penstock data stats`.

Times and memory are simulated for the first batches, with the cost model of an estimate; a run with
`data.policy = "auto"` compares policies in the same way.
"""

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from penstock.arch.config import ModelConfig
from penstock.arch.mesh_shape import MeshShape, refuse_misfits
from penstock.cluster.cluster import Cluster
from penstock.core.kernel import compile_small_work
from penstock.cost.hardware import HARDWARE
from penstock.data.corpus import Longs
from penstock.data.stats.policies import (
    CUT_WAY,
    BatchRule,
    PolicyOutcome,
    Units,
    batches_of_documents,
    outcome_of,
    packed_outcomes,
)
from penstock.errors import PenstockError, ShapeError
from penstock.estimate.group_cost import GroupSetting, group_cost
from penstock.estimate.memory_classes import CONTEXT, DRIVER
from penstock.estimate.policies.arranged import ArrangedStep, packed_step, tokens_of
from penstock.estimate.policies.choice import PolicyPrice, within
from penstock.estimate.policies.step_price import PolicySetting, mean_price, sized_for
from penstock.estimate.policies.steps import grouped_steps, sliced_steps, whole_orders
from penstock.plan.balance import TokenCost
from penstock.plan.ragged_batch import RaggedBatches, SliceRule
from penstock.plan.sequence_groups.batch import flexible_groups
from penstock.plan.slice_choice import weight_read_tokens
from penstock.schedules import Spec, registry

PRICED_BATCHES = 4
"""Batches that are cut into slices, grouped and simulated."""
TYPICAL_RATES = HARDWARE["h200"]
"""Whose rates say how much reading weights costs against computing with them."""
USUAL_SLICES = 8
"""Slices of the longest sequence where neither a size nor a model is given."""
NO_FLEX = "flex is shown with --model: its groups follow from what ranks and messages cost"
PLAIN_TOKENS = TokenCost(linear=1, attention=0)
"""What tokens cost where there is no model."""


class PricedModel(NamedTuple):
    """What a step would be computed by."""

    config: ModelConfig
    cluster: Cluster
    mesh: MeshShape
    devices: int
    spec: Spec
    """A schedule with an order for sequences of any lengths."""

    @property
    def room(self) -> int:
        """Bytes of a GPU that a run may take."""
        return self.cluster.gpu.memory - CONTEXT - DRIVER

    def setting(self, longest: int) -> PolicySetting:
        cluster = sized_for(self.cluster, self.mesh.ranks(self.devices))
        return PolicySetting(self.config, cluster, self.mesh, self.devices, longest)


class PolicyRow(NamedTuple):
    """A policy: what it makes of documents, and what a step takes."""

    outcome: PolicyOutcome
    price: PolicyPrice | None
    """None without a model, or where the policy cannot be run."""

    @property
    def tokens_per_second(self) -> float:
        return self.outcome.tokens / self.price.seconds if self.price else 0.0

    @property
    def memory(self) -> int:
        return self.price.memory if self.price else 0


class PolicyTable(NamedTuple):
    """All rows, and what is to be said of them."""

    rows: list[PolicyRow]
    notes: list[str]
    slice_tokens: int
    """Of `chunk`, given or chosen."""


def any_length_schedule() -> Spec:
    """The last schedule that has an order for sequences of any lengths."""
    return [spec for spec in registry().values() if spec.ragged][-1]


def policy_table(lengths: Longs, rule: BatchRule, priced: PricedModel | None) -> PolicyTable:
    """Every policy for documents in this order, none longer than a sequence."""
    packed, batches = packed_outcomes(lengths, rule), _first(lengths, rule)
    short = _short_words(int(lengths.sum()), rule)
    with compile_small_work():
        if priced is None:
            size = rule.slice_tokens or max(rule.length // USUAL_SLICES, 1)
            plain = [*(PolicyRow(each, None) for each in packed), _cut(batches, rule.length, size)]
            return PolicyTable(plain, [*short, NO_FLEX], size)
        refuse_misfits(priced.config, priced.mesh)
        rows = [_packed(each, rule, priced) for each in packed]
        sliced, cut = _sliced(batches, rule, priced)
        notes = [*short, f"chunk: {_words(cut)}"]
        try:
            rows += [sliced, _grouped(batches, rule, priced)]
        except PenstockError as refusal:
            rows.append(sliced)
            notes.append(f"flex is not shown: {refusal.message}")
    return PolicyTable(rows, notes, cut.size)


def _short_words(tokens: int, rule: BatchRule) -> list[str]:
    """What is to be said of few documents.

    >>> _short_words(14, BatchRule(length=16, tokens=16, slice_tokens=4))[0]
    'pack, cut is not shown: a sequence has 16 tokens, but the documents have only 14'
    """
    said = []
    if tokens < rule.length:
        said.append(
            f"{CUT_WAY} is not shown: a sequence has {rule.length:,} tokens, but the documents "
            f"have only {tokens:,}"
        )
    if tokens < rule.tokens:
        said.append(
            f"a step of {rule.tokens:,} tokens is more than all documents, which have {tokens:,}: "
            "it is shown with each of them once, but a run takes them again"
        )
    return said


def _first(lengths: Longs, rule: BatchRule) -> list[list[int]]:
    return [
        each.tolist() for each in islice(batches_of_documents(lengths, rule.tokens), PRICED_BATCHES)
    ]


def _packed(outcome: PolicyOutcome, rule: BatchRule, priced: PricedModel) -> PolicyRow:
    order = whole_orders(priced.spec, priced.devices)
    steps = []
    for units in outcome.made[:PRICED_BATCHES]:
        rows = [
            [[*map(int, documents), *([int(padding)] if padding else [])]]
            for documents, padding in zip(units.documents, units.padding)
        ]
        lengths = ((rule.length,),) * len(rows)
        steps.append(packed_step(order(len(rows)), rows, lengths))
    return PolicyRow(outcome, _price(outcome.name, steps, rule, priced))


def _cut(batches: Sequence[Sequence[int]], length: int, size: int) -> PolicyRow:
    """Slices where there is no model."""
    base = RaggedBatches(any_length_schedule(), 1, SliceRule(size), length, PLAIN_TOKENS)
    found = sliced_steps(base, base.rule, batches, lambda step: True)
    return PolicyRow(_outcome("chunk", found.steps), None)


def _sliced(
    batches: Sequence[Sequence[int]], rule: BatchRule, priced: PricedModel
) -> tuple[PolicyRow, SliceRule]:
    model, setting = priced.config, priced.setting(rule.length)
    cost = TokenCost.of_model(model, weight_read_tokens(model, TYPICAL_RATES))
    base = RaggedBatches(priced.spec, priced.devices, SliceRule(1), rule.length, cost)
    given = SliceRule(rule.slice_tokens, 0, 0)
    anyway = False

    def fits(step: ArrangedStep) -> bool:
        return anyway or setting.memory(step) <= priced.room

    try:
        found = sliced_steps(base, given, batches, fits)
    except PenstockError:  # nothing has room, which the memory of the fastest way then shows
        anyway = True
        found = sliced_steps(base, given, batches, fits)
    row = PolicyRow(_outcome("chunk", found.steps), _price("chunk", found.steps, rule, priced))
    return row, found.rule


def _words(rule: SliceRule) -> str:
    """How documents are cut.

    >>> _words(SliceRule(4096, 2, 4))
    'slices of up to 4,096 tokens, 2 of a document kept, warm-up for 4'
    """
    size, retain, warmup = rule
    return f"slices of up to {size:,} tokens, {retain} of a document kept, warm-up for {warmup}"


def _grouped(batches: Sequence[Sequence[int]], rule: BatchRule, priced: PricedModel) -> PolicyRow:
    _refuse_no_groups(priced.mesh)
    cell = priced.mesh.cell.ulysses
    capacity = -(-rule.length // cell)
    cluster = sized_for(priced.cluster, priced.mesh.ranks(priced.devices))
    cost = group_cost(GroupSetting(priced.config, cluster, cell, rule.length, capacity=capacity))
    order = whole_orders(priced.spec, priced.devices)
    plan = partial(flexible_groups, cell=cell, cost=cost)
    steps = grouped_steps(batches, plan, order, priced.devices)
    return PolicyRow(_outcome("flex", steps), _price("flex", steps, rule, priced))


def _refuse_no_groups(mesh: MeshShape) -> None:
    if mesh.ring > 1:
        raise ShapeError(
            f"{mesh.ring} ranks pass keys and values round", hint="give a mesh without a ring"
        )
    if mesh.sequence == 1:
        raise ShapeError("no ranks of a device share tokens", hint="give --mesh sequence=2 or more")


def _price(
    name: str, steps: Sequence[ArrangedStep], rule: BatchRule, priced: PricedModel
) -> PolicyPrice:
    found = mean_price(priced.setting(rule.length), steps)
    return within(PolicyPrice(name, found.seconds, found.memory), priced.room)


def _outcome(name: str, steps: Sequence[ArrangedStep]) -> PolicyOutcome:
    return outcome_of(name, [_units(step) for step in steps])


def _units(step: ArrangedStep) -> Units:
    slices = [slice for microbatch in step.slices for slice in microbatch]
    tokens = np.array([tokens_of(slice) for slice in slices])
    documents = tuple(np.array([stop - start for start, stop in slice]) for slice in slices)
    return Units(tokens, np.zeros_like(tokens), documents)
