"""What `data.policy = "chunk"` runs: a schedule that has an order for sequences of any lengths.

The batch of a step is known when its turn comes. What is refused before a process starts, and what
memory is predicted, is that of the largest batch: each of its sequences has all the tokens that
`batch.length` allows.
"""

from collections.abc import Callable

from penstock.arch.config import ModelConfig
from penstock.core.schedule import Schedule
from penstock.cost.hardware import HARDWARE
from penstock.errors import ShapeError
from penstock.plan.balance import TokenCost
from penstock.plan.ragged_batch import OrderedBatch, RaggedBatches, SliceRule
from penstock.plan.slice_choice import slice_sizes, weight_read_tokens
from penstock.schedules import Spec, find, names_a_file
from penstock.train.config.settings import Settings
from penstock.train.loop.flags import refusals_in_keys

TYPICAL = HARDWARE["h200"]
"""Whose rates say how much reading weights costs against computing with them."""


def ragged_batches(
    settings: Settings, model: ModelConfig, devices: int, change: Callable[[Schedule], Schedule]
) -> RaggedBatches:
    """The orders of a run by the rule that its settings give, and with what they leave open as
    small as can be."""
    rule = given_rule(settings)
    least = slice_sizes(settings.batch.length)[0]
    smallest = SliceRule(rule.size or least, rule.retain or 1, rule.warmup or 1)
    cost = TokenCost.of_model(model, weight_read_tokens(model, TYPICAL))
    return RaggedBatches(
        _ragged_spec(settings), devices, smallest, settings.batch.length, cost, change
    )


def given_rule(settings: Settings) -> SliceRule:
    """What the settings say of the rule; 0 where they leave it open."""
    options = settings.pipeline.options
    with refusals_in_keys():
        read = {
            option.name: option.read(settings.pipeline.schedule, options[option.name])
            for option in _ragged_spec(settings).options
            if option.name in options
        }
    return SliceRule(settings.data.slice_tokens, read.get("retain", 0), read.get("warmup", 0))


def largest_batch(settings: Settings, ragged: RaggedBatches) -> OrderedBatch:
    """The order of a batch of the longest sequences."""
    with refusals_in_keys():
        return ragged.order([settings.batch.length] * settings.batch.microbatches)


def is_ragged(schedule: str) -> bool:
    """Whether a schedule has an order for sequences of any lengths."""
    return not names_a_file(schedule) and find(schedule).ragged


def _ragged_spec(settings: Settings) -> Spec:
    name = settings.pipeline.schedule
    if is_ragged(name):
        return find(name)
    raise ShapeError(
        f'data.policy is "chunk", but {name} has no order for sequences of unequal lengths',
        hint="take a schedule with the option groups (see `penstock list`), or set data.policy "
        'to "pack"',
    )
