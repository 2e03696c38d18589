"""Time and memory of a step under a data policy, from counts alone: a first look, not a simulation.

A device works on its share of every unit, and waits while the pipeline fills and drains: for all
devices but one, the largest unit. So a step takes (sum + (p - 1) x largest) / p of the times of its
units, as orders of one forward, one backward do with equal units.
"""

from typing import NamedTuple

import numpy as np

from penstock.arch.config import ModelConfig
from penstock.cost.hardware import Hardware
from penstock.data.stats.policies import PolicyOutcome, Units

BACKWARD = 2
"""Backward work for each forward work."""


class PolicyPrice(NamedTuple):
    """What a policy costs."""

    seconds: float
    """Of a step, a mean over batches."""
    tokens_per_second: float
    memory: float
    """Bytes of activations on a device: as many units as there are devices, on its layers."""


def price_policy(
    outcome: PolicyOutcome, model: ModelConfig, machine: Hardware, devices: int, longest: int
) -> PolicyPrice:
    """Time and memory of a policy on a pipeline of so many devices."""
    times = [_step_seconds(units, model, machine, devices) for units in outcome.made]
    tokens = sum(int(units.tokens.sum()) for units in outcome.made)
    held = outcome.largest * model.saved_bytes * model.layers
    if outcome.name == "chunk":  # keys and values of a long document stay until its last slice
        held += longest * model.kv_bytes * model.layers // devices
    return PolicyPrice(sum(times) / len(times), tokens / sum(times), held)


def _step_seconds(units: Units, model: ModelConfig, machine: Hardware, devices: int) -> float:
    products = (units.tokens + units.padding) * (model.flops_per_token / machine.linear)
    forward = units.pairs * (model.flops_per_pair / machine.attention)
    backward = units.pairs * (model.flops_per_pair / machine.attention_backward)
    seconds = (1 + BACKWARD) * products + forward + BACKWARD * backward
    return float(seconds.sum() + (devices - 1) * np.max(seconds)) / devices
