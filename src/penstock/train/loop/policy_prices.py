"""What the steps of a run would take under each data policy: its first batches, simulated.

All policies have the same samples, devices and times of ops, and each is run as a run with that
policy runs it: with its schedule, its rule for slices and its groups. What cannot be run so, or has
no room, is refused in the words of a run that asks for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from penstock.arch.cell_shape import CellShape
from penstock.arch.config import ModelConfig
from penstock.cluster.presets import CLUSTERS
from penstock.cluster.profile_file import read_machine
from penstock.core.kernel import compile_small_work
from penstock.core.shape import Shape
from penstock.data import Microbatch, SampleStream
from penstock.data.settings import DataSettings, PolicyName
from penstock.errors import PenstockError, ShapeError
from penstock.estimate.policies.arranged import ArrangedStep, DocumentRow, packed_step
from penstock.estimate.policies.choice import PolicyPrice, within
from penstock.estimate.policies.step_price import PolicySetting, mean_price, sized_for
from penstock.estimate.policies.steps import grouped_steps, one_slice_each, sliced_steps
from penstock.plan.balance import TokenCost
from penstock.plan.ragged_batch import SliceRule
from penstock.train.config.policy_misfits import refuse_with_chunk, refuse_with_flex
from penstock.train.config.settings import Settings
from penstock.train.loop.before_start import weights_of_ranks
from penstock.train.loop.grouped_setup import TYPICAL_CLUSTER, group_planner
from penstock.train.loop.plan_choice import refuse_policy
from penstock.train.loop.ragged_setup import given_rule, is_ragged
from penstock.train.loop.setup import RunSetup, layout_of, order_for, ragged_of
from penstock.train.loop.sliced_batches import (
    SIMULATED_BATCHES,
    busiest_replica,
    first_lengths,
)

CONTENDERS: tuple[PolicyName, ...] = ("pack", "chunk", "flex")
"""In the order in which they are compared: gains are told against the first."""
OWN_KEYS = {"slice_tokens": "chunk"} | dict.fromkeys(
    ("groups", "group_ranks", "rank_tokens", "profile"), "flex"
)
"""Keys of the data that one policy has."""


def with_policy(settings: Settings, policy: PolicyName, rule: SliceRule | None = None) -> Settings:
    """The settings of a run with this policy, and with a rule for slices where one was chosen."""
    usual = DataSettings.__dataclass_fields__
    unused: dict[str, Any] = {
        key: usual[key].default for key, owner in OWN_KEYS.items() if owner != policy
    }
    data = replace(settings.data, policy=policy, **unused)
    options: dict[str, Any] = dict(settings.pipeline.options)
    if policy != "chunk" and is_ragged(settings.pipeline.schedule):
        options = {key: value for key, value in options.items() if key == "groups"}
        if policy == "pack":
            options.setdefault("groups", one_slice_each(settings.batch.microbatches))
    if rule is not None:
        data = replace(data, slice_tokens=rule.size)
        options |= {"retain": rule.retain, "warmup": rule.warmup}
    pipeline = settings.pipeline.model_copy(update={"options": options})
    return settings.model_copy(update={"data": data, "pipeline": pipeline})


@dataclass(frozen=True, eq=False)
class PricedPolicy:
    """A price, and the settings of a run like that."""

    price: PolicyPrice
    settings: Settings


@dataclass(frozen=True, eq=False)
class PolicyPrices:
    """Prices for one run."""

    settings: Settings
    model: ModelConfig
    ranks: int
    samples: SampleStream
    """Of which a step takes the next ones."""
    room: int
    """Bytes of each rank; 0 where nothing limits them."""

    def all(self) -> list[PricedPolicy]:
        """One for each policy, in the order of `CONTENDERS`."""
        makers: dict[PolicyName, Callable[[Settings], PricedPolicy]]
        makers = {"pack": self._pack, "chunk": self._chunk, "flex": self._flex}
        with compile_small_work():
            return [self._refusable(policy, makers[policy]) for policy in CONTENDERS]

    def _refusable(
        self, policy: PolicyName, make: Callable[[Settings], PricedPolicy]
    ) -> PricedPolicy:
        settings = with_policy(self.settings, policy)
        try:
            found = make(settings)
        except PenstockError as error:
            return PricedPolicy(PolicyPrice(policy, refusal=error.message), settings)
        return replace(found, price=within(found.price, self.room))

    def _pack(self, settings: Settings) -> PricedPolicy:
        setup = self._setup(settings)
        steps, start = [], 0
        for _ in range(SIMULATED_BATCHES):
            rows = max(map(_rows_of, self._dealt(start)), key=_squares)
            steps.append(packed_step(setup.schedule, rows, setup.lengths))
            start = self.samples.numbers(start, self._places).stop
        return self._priced(settings, setup, steps)

    def _dealt(self, start: int) -> list[tuple[Microbatch, ...]]:
        """The microbatches of every replica."""
        batch, replicas = self.settings.batch, self.settings.mesh.replicas
        sizes = (replicas, batch.microbatches, batch.rows)
        return [self.samples.batch_at(start, replica, *sizes) for replica in range(replicas)]

    def _chunk(self, settings: Settings) -> PricedPolicy:
        refuse_with_chunk(settings)
        setup = self._setup(settings)
        ragged = ragged_of(settings, self.model, setup.schedule.shape.devices)
        replicas = settings.mesh.replicas
        batches = [busiest_replica(each, replicas, ragged.cost) for each in self._lengths]
        setting = self._setting(settings, setup)

        def fits(step: ArrangedStep) -> bool:
            return not self.room or setting.memory(step) <= self.room

        rule, steps = sliced_steps(ragged, given_rule(settings), batches, fits)
        words = f"slices of {rule.size:,} tokens, {rule.retain} kept, warm-up for {rule.warmup}"
        return self._priced(with_policy(settings, "chunk", rule), setup, steps, words)

    def _flex(self, settings: Settings) -> PricedPolicy:
        refuse_with_flex(settings)
        setup = self._setup(settings)
        shape, cell = setup.schedule.shape, setup.mesh.cell
        _refuse_unpriced(shape, cell)
        part = self.model.share(0, cell.tensor) if cell.tensor > 1 else self.model
        planner = group_planner(settings, part)
        order = partial(order_for, settings, self.model, shape.devices)
        dealing, replicas = TokenCost.of_model(self.model), settings.mesh.replicas
        batches = [busiest_replica(each, replicas, dealing) for each in self._lengths]
        steps = grouped_steps(
            batches, lambda lengths: planner.plan(lengths).batch, order, shape.devices
        )
        return self._priced(settings, setup, steps)

    @property
    def _places(self) -> int:
        """Samples of a global batch."""
        batch = self.settings.batch
        return self.settings.mesh.replicas * batch.microbatches * batch.rows

    @cached_property
    def _lengths(self) -> list[list[int]]:
        """Of the documents of the first batches; one token where no label counts."""
        return [each or [1] for each in first_lengths(self.samples, self._places)]

    def _setup(self, settings: Settings) -> RunSetup:
        setup = layout_of(settings, self.ranks)
        refuse_policy(settings, setup)
        return setup

    def _priced(
        self, settings: Settings, setup: RunSetup, steps: Sequence[ArrangedStep], words: str = ""
    ) -> PricedPolicy:
        found = mean_price(self._setting(settings, setup), steps)
        price = PolicyPrice(settings.data.policy, found.seconds, found.memory, words=words)
        return PricedPolicy(price, settings)

    def _setting(self, settings: Settings, setup: RunSetup) -> PolicySetting:
        cluster, times = CLUSTERS[TYPICAL_CLUSTER], dict[str, Any]()
        if profile := self.settings.data.profile or self.settings.plan.profile:
            machine = read_machine(Path(profile))
            cluster, kernels = machine.cluster, machine.kernels
            times = {"precision": kernels.precision, "fused_norm": kernels.fused}
        return PolicySetting(
            self.model,
            sized_for(cluster, self.ranks),
            setup.mesh,
            setup.schedule.shape.devices,
            settings.batch.length,
            setup.layers,
            settings.mesh.shard,
            weights_of_ranks(settings, setup),
            **times,
        )


def _refuse_unpriced(shape: Shape, cell: CellShape) -> None:
    """Groups whose times are not known: those that cut their tokens again."""
    problem = f"{cell.ring} ranks form a ring" if cell.ring > 1 else ""
    if max(shape.slices) > 1:
        problem = f"a microbatch has {max(shape.slices)} slices"
    if problem:
        raise ShapeError(
            f"groups are compared by whole sequences, but {problem}",
            hint='set data.policy to "flex" to train so, or leave slices and rings out',
        )


def _rows_of(microbatches: Sequence[Microbatch]) -> list[list[DocumentRow]]:
    """Tokens of each document of each row."""
    return [
        [[end - start for start, end in pairwise((*starts, mb.length))] for starts in mb.documents]
        for mb in microbatches
    ]


def _squares(rows: Sequence[Sequence[DocumentRow]]) -> int:
    return sum(length * length for microbatch in rows for row in microbatch for length in row)
