"""What groups of ranks cost on a cluster or on a machine that was profiled, for planning batches.

A planner of groups (plan/sequence_groups) prices thousands of groups and needs few numbers: seconds
of a squared token, of a token and of a microbatch. They are fitted to the times of whole sequences,
from the closed forms of kernels (estimate/layer_times.py) or from a profile's rates. Exchanges of
each size of group are fitted to the times of collectives in the same way, and memory gives the
tokens that a rank can hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np

from penstock.arch.attention_rule import seen_half_pairs
from penstock.arch.config import ModelConfig
from penstock.arch.mesh_shape import fewest_heads
from penstock.cluster.cluster import Cluster
from penstock.cluster.collective_times import NETWORK_SHARE, START, GroupLinks
from penstock.cluster.gpu import AttentionKernel, Precision
from penstock.cluster.profile_file import MeasuredMachine
from penstock.cost.copies import Shard
from penstock.cost.layer_sums import alike_layers
from penstock.cost.temporary import fused_backward_bytes
from penstock.errors import PlanError
from penstock.estimate.layer_seconds import UnitTokens
from penstock.estimate.layer_times import LayerTimes
from penstock.estimate.layout import BYTES_OF
from penstock.estimate.measured_times import profiled_times
from penstock.estimate.memory_classes import context_bytes
from penstock.plan.sequence_groups.cost import ExchangeCost, GroupCost, powers_of_two
from penstock.plan.stage_parameters import MAIN_BYTES

SHORTEST_FITTED = 128
"""Tokens of the shortest sequence that times are fitted to."""
EXCHANGES = 4
"""All-to-alls of a layer: two in its forward, two in its backward."""
MOMENTS_KEPT = 2
"""Of each weight, by AdamW."""


@dataclass(frozen=True)
class GroupSetting:
    """A model whose weights all ranks hold, or share, and the ranks that form groups."""

    model: ModelConfig
    cluster: Cluster
    cell: int
    """Ranks that form groups."""
    longest: int
    """Tokens of the longest sequence that is to come."""
    layers: int = 0
    """Of a stage; 0 stands for all."""
    shard: Shard = "none"
    attention: AttentionKernel = "flash2"
    precision: Precision = "bf16"
    capacity: int = 0
    """Tokens of a rank; 0 stands for those that memory is enough for."""

    @property
    def sized(self) -> ModelConfig:
        """The model with the bytes of its numbers, and the layers of a stage."""
        layers = self.layers or self.model.layers
        return replace(self.model, element_bytes=BYTES_OF[self.precision], layers=layers)


def group_cost(setting: GroupSetting) -> GroupCost:
    """The cost of groups by closed forms, or by the rates of the GPU's profile if it has one."""
    lengths = _lengths(setting.longest)
    pair, token, fixed = _fit(
        [(length * length, length, 1) for length in lengths],
        [_seconds(setting, length) for length in lengths],
    )
    exchange = {degree: _exchange(setting, degree, lengths) for degree in _degrees(setting)}
    return GroupCost(pair, token, fixed, exchange, setting.capacity or _capacity(setting))


def group_cost_of_profile(setting: GroupSetting, machine: MeasuredMachine) -> GroupCost:
    """The same with what `penstock profile` has measured."""
    measured = machine.replaces(setting.cluster)
    precision: Any = machine.kernels.precision
    return group_cost(replace(setting, cluster=measured, precision=precision))


def _lengths(longest: int) -> list[int]:
    sizes = (SHORTEST_FITTED << power for power in range(40))
    return [*takewhile(lambda size: size < longest, sizes), max(longest, SHORTEST_FITTED)]


def _degrees(setting: GroupSetting) -> list[int]:
    """Sizes of groups in which every rank has a query head."""
    model = setting.model
    sizes = sorted({*powers_of_two(setting.cell), setting.cell})
    usable = [degree for degree in sizes if degree <= model.heads]
    return [degree for degree in usable if fewest_heads(model.heads, model.kv_heads, degree)]


def _seconds(setting: GroupSetting, length: int) -> float:
    """Forward and backward of one sequence on one rank."""
    model, gpu = setting.sized, setting.cluster.gpu
    times = LayerTimes(
        model, model, gpu, gpu.peak_of(setting.precision), setting.attention, fused_norm=True
    )
    if gpu.measured:
        times = profiled_times(times, sliced=False)
    products = 4.0 + 2.0 * model.trains_all
    head = times.head_seconds(length, products * model.head_weights * length, "B")
    layers = alike_layers(model, range(model.layers))
    each = (
        count * sum(_of_layer(times, kind, seen).seconds(_sequence(length, seen)))
        for kind, seen, count in layers
    )
    return sum(each) + head


def _of_layer(times: LayerTimes, kind: ModelConfig, window: int | None) -> LayerTimes:
    """The times of a layer of some kind, with a window or without one."""
    part = replace(kind, window=window, window_pattern=())
    return replace(times, part=part, attended=part)


def _sequence(tokens: int, window: int | None) -> UnitTokens:
    """A whole sequence in a layer with a window, or without one."""
    near = min(tokens, window or tokens)
    pairs = (seen_half_pairs(tokens, window) + near) / 2
    return UnitTokens(tokens, tokens, tokens, pairs, float(tokens * tokens))


def _exchange(setting: GroupSetting, degree: int, lengths: Sequence[int]) -> ExchangeCost:
    """Queries, keys, values and outputs of a rank's tokens, sent to the others of its group."""
    if degree == 1:
        return ExchangeCost()
    model = setting.sized
    attention = model.attention
    heads = 2 * (attention.query_width + attention.key_width) * model.element_bytes
    each = [length * heads / 2 * (degree - 1) / degree**2 for length in lengths]
    calls = EXCHANGES * len(model.attending(range(model.layers)))
    seconds = [calls * _call_seconds(setting.cluster, degree, sent) for sent in each]
    token, start = _fit([(length / degree, 1) for length in lengths], seconds)
    return ExchangeCost(token, start)


def _call_seconds(cluster: Cluster, degree: int, sent: float) -> float:
    """One all-to-all in which a rank sends so many bytes, the same to each of the others. What goes
    to other machines takes the rank's own share of the cards, and is the slower part."""
    near = min(degree, cluster.machine.gpus)
    inside = GroupLinks(cluster, near, near).message_seconds(sent * (near - 1) / (degree - 1))
    if near == degree:
        return inside
    away = sent * (degree - near) / (degree - 1)
    outside = away / (cluster.card_share * NETWORK_SHARE)
    return max(inside, START + cluster.network.latency + outside)


def _fit(columns: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Least squares of relative errors, without negative parts: one that would be negative is left
    out."""
    table, wanted = np.array(columns, float), np.array(seconds, float)
    kept = [*range(table.shape[1])]
    while True:
        found = np.linalg.lstsq(table[:, kept] / wanted[:, None], np.ones(len(wanted)))[0]
        if len(kept) == 1 or found.min() >= 0:
            return [
                float(found[kept.index(at)]) if at in kept else 0.0 for at in range(table.shape[1])
            ]
        kept.pop(int(found.argmin()))


def _capacity(setting: GroupSetting) -> int:
    """Tokens whose activations fit beside weights, gradients and moments."""
    model, gpu = setting.sized, setting.cluster.gpu
    free = gpu.memory - context_bytes(gpu) - _state_bytes(setting)
    kept = model.total("saved_bytes") + model.total("kv_bytes") + fused_backward_bytes(model)
    tokens = int(free // kept)
    if tokens < 1:
        raise PlanError(
            f"weights, gradients and moments leave {max(free, 0):,.0f} bytes of "
            f"{gpu.memory:,} on a rank, but one token keeps {kept:,}",
            hint="share weights over ranks (shard), or take more stages",
        )
    return tokens


def _state_bytes(setting: GroupSetting) -> float:
    """Of a rank: values in the type of computing, gradients, main weights and both moments."""
    model = setting.sized
    narrow = model.element_bytes * (model.element_bytes < MAIN_BYTES)
    owned = (1 + MOMENTS_KEPT) * MAIN_BYTES
    parts = {
        "none": (narrow + MAIN_BYTES + owned, 0),
        "optimizer": (narrow + MAIN_BYTES, owned),
        "full": (0, narrow + MAIN_BYTES + owned),
    }
    whole, shared = parts[setting.shard]
    trained, frozen = model.trained_parameters, model.parameters - model.trained_parameters
    values = frozen * model.element_bytes / (setting.cell if setting.shard == "full" else 1)
    return float(trained * (whole + shared / setting.cell) + values)
