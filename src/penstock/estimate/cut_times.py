"""Seconds of the stages of a model that is cut at its attention.

The kernels of a layer are dealt out to three places (model/stages/between_attentions.py):

    in front of attention    the norm there, if any; queries, keys and values, and their norms
    attention                rotation, copies around exchanges of heads, and attention itself
    behind it                the projection back, both sums, the other norms, the MLP

Where attention is given weights, it makes queries, keys and values itself. What goes to another
device is put together in one tensor first, which is one kernel more for each message.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.arch.attention_cut import HEADS, front_parameters
from penstock.arch.config import ModelConfig
from penstock.arch.layers.norm import AFTER
from penstock.cluster.measured import EXPERT_ROWS, PRODUCT_PASSES
from penstock.cost.collectives import BACKWARD_KINDS, FORWARD_KINDS
from penstock.cost.cut_workload import CutWorkload
from penstock.estimate.kernel_parts import (
    HEAD_NORMS,
    HEADS_EXCHANGED,
    PRODUCT,
    KernelSeconds,
    adapter_matrices,
    hidden_norms,
    multiplied_matrices,
)
from penstock.estimate.layer_seconds import LayerColumns, LayerSeconds, UnitTokens
from penstock.estimate.layer_times import LayerTimes
from penstock.estimate.products import KERNEL_START

KernelShares = Mapping[str, float]
"""Of the kernels of a layer, by name, what a place has."""


NO_SECONDS = LayerSeconds(0.0, 0.0, 0.0)


class LayersOfStages(NamedTuple):
    """The layers of one sort."""

    counts: NDArray[np.int64]
    """How many each stage has."""
    units: Sequence[UnitTokens]
    """What a rank has of each slice there."""
    times: LayerTimes
    """Of such a layer."""


class CutLayer(NamedTuple):
    """Seconds of a layer without its attention, place by place."""

    front: LayerSeconds
    prepared: LayerSeconds
    """In front of attention itself, on its stage."""
    rest: LayerSeconds

    @classmethod
    def of(cls, times: LayerTimes, unit: UnitTokens, to_attention: str) -> "CutLayer":
        """What a slice takes at each place; ops of whole stages have none."""
        if not unit.whole:
            return cls(*[NO_SECONDS] * 3)
        projection = {HEAD_NORMS: 1.0} | {
            f"{PRODUCT}{number}": 1.0
            for number, leads_in in enumerate(_leads_in(times.part))
            if leads_in
        }
        in_front = (times.part.norms != AFTER) / hidden_norms(times.part)
        behind = {"norm": 1 - in_front, "sum": 1.0, "gate": 1.0, EXPERT_ROWS: 1.0} | {
            name: 1.0 for name, _ in times.parts(unit) if name.startswith(PRODUCT)
        }
        front, attention = {"norm": in_front}, {"rotation": 1.0, HEADS_EXCHANGED: 1.0}
        (front if to_attention == HEADS else attention).update(projection)
        rest = {name: share for name, share in behind.items() if name not in projection}
        return cls(*(_dealt(times, unit, each) for each in (front, attention, rest)))


def cut_seconds(
    work: CutWorkload,
    kind: str,
    times: LayerTimes,
    sorts: Sequence[LayersOfStages],
    messages: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Of ops of a kind on each stage, by slices that differ, with the layers of each sort. Which
    pairs a layer sees matters to its attention alone. `messages` are the bytes that go to attention
    and come from it, of each of these slices."""
    layers = [CutLayer.of(times, unit, work.to_attention) for unit in sorts[0].units]
    front, prepared, rest = (LayerColumns.of(each).of_kind(kind) for each in zip(*layers))
    attention = np.array([stage in work.weightless for stage in range(len(work.layers))])
    found = np.outer(work.has_front, front) + np.outer(work.has_rest, rest)
    found += np.outer(attention, prepared)
    if kind != "R" or work.to_attention == HEADS:  # else the output of attention was kept
        for counts, units, own in sorts:
            attended = LayerColumns.of(_attended(own, unit) for unit in units)
            found += np.outer(counts, attended.of_kind(kind))
    there, back = np.where(messages > 0, KERNEL_START + 2 * messages / times.memory_rate, 0.0)
    if kind in FORWARD_KINDS:
        found += np.outer(work.has_front, there) + np.outer(attention, back)
    if kind in BACKWARD_KINDS:
        found += np.outer(work.has_rest, back) + np.outer(attention, there)
    return found


def _attended(times: LayerTimes, unit: UnitTokens) -> LayerSeconds:
    """What attention of a slice takes; ops of whole stages have none."""
    return times.attended_seconds(unit) if unit.whole else NO_SECONDS


def _leads_in(part: ModelConfig) -> Iterator[bool]:
    """Which products of a layer, in the order of `LayerTimes.products`, lead into attention."""
    names = {each.name for each in front_parameters(part)}
    yield from (own[0].name in names for own in multiplied_matrices(part))
    yield from (own[0].name in names for own in adapter_matrices(part))


def _dealt(times: LayerTimes, unit: UnitTokens, shares: KernelShares) -> LayerSeconds:
    """What a place has of all but attention; what a profile found beyond kernels is dealt out as
    these are."""
    kernels, attended = times.parts(unit), times.attended_seconds(unit)
    beside = (whole - own for whole, own in zip(times.seconds(unit), attended))
    return LayerSeconds(
        *(
            seconds * _share(kernels, passed, shares)
            for passed, seconds in zip(PRODUCT_PASSES, beside)
        )
    )


def _share(kernels: KernelSeconds, passed: str, shares: KernelShares) -> float:
    own = sum(share * kernels.get((name, passed), 0.0) for name, share in shares.items())
    return own / (kernels.of(passed) or 1.0)
