"""What an op of a transformer needs only while it runs, on top of what is kept.

Memory is short at one moment of a step, and at that moment an op is running. Its own tensors, which
come and go within a layer, are a few percent of what is kept, and more where a device has few
layers. Each kind of layer says what its backward needs and what it leaves waiting
(arch/layers/record.py); a backward meets the records of a layer from the last to the first.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from penstock.arch.config import ModelConfig
from penstock.arch.layers.record import LayerRecord


def forward_bytes(model: ModelConfig) -> int:
    """Of one token in the forward of a layer: its output, which the next device gets."""
    return model.boundary_bytes


def backward_bytes(model: ModelConfig) -> int:
    """Of one token in the backward of a layer, at its highest."""
    return _highest(model, lambda record: record.backward_bytes)


def fused_backward_bytes(model: ModelConfig) -> int:
    """The same with the fused kernels of a GPU."""
    return _highest(model, lambda record: record.fused_backward_bytes)


class KernelNeeds(NamedTuple):
    """What the kernels of a device need for a while."""

    inside: Callable[[ModelConfig], int]
    """Bytes of one token in the backward of a layer, while it runs."""
    roots: int
    """Roots of second moments that an update has at once, of each weight of a stage's matrices."""


HOST_KERNELS = KernelNeeds(backward_bytes, 1)
GPU_KERNELS = KernelNeeds(fused_backward_bytes, 0)
"""Fused ones: one kernel updates all weights."""
PLAIN_GPU_KERNELS = KernelNeeds(backward_bytes, 0)


def _highest(model: ModelConfig, needed: Callable[[LayerRecord], int]) -> int:
    """Of the kind of layer that needs most."""
    return max(_highest_of_layer(kind.layer_records[::-1], needed) for kind in model.kinds)


def _highest_of_layer(records: Sequence[LayerRecord], needed: Callable[[LayerRecord], int]) -> int:
    waiting = accumulate((record.waiting_bytes for record in records), initial=0)
    return max(needed(record) + before for record, before in zip(records, waiting))


def loss_bytes(model: ModelConfig, tokens: int) -> int:
    """Of a slice in the backward of the loss: logits, and the normed input, which its gradient is
    written over."""
    inside = model.head.logits_bytes(tokens) + model.head_adapter_bytes(tokens)
    return inside + tokens * model.boundary_bytes
