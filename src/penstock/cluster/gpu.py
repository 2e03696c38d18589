"""What one GPU can do, and how much of it kernels reach.

A data sheet gives peaks, and no kernel reaches them. So a GPU has both: rates of its data sheet,
and the share of each that kernels reach in a step. A share belongs to the GPU, because it differs
more between GPUs than between models.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, NamedTuple, get_args

from penstock.cluster.measured import MeasuredKernels
from penstock.errors import ShapeError, nearest

Precision = Literal["bf16", "fp16", "fp32"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
AttentionKernel = Literal["flash2", "flash1", "cudnn", "fused-softmax", "unfused"]
ATTENTION_KERNELS: tuple[AttentionKernel, ...] = get_args(AttentionKernel)
KEEP_SCORES: frozenset[AttentionKernel] = frozenset(("fused-softmax", "unfused"))
"""Those that are several kernels, between which scores and probabilities of all pairs are in
memory. One of them may be for scale, mask and softmax, as in Megatron-LM, or each is on its own."""


class PassShares(NamedTuple):
    """Shares of the peak that a kernel of attention reaches on long sequences. FLOPs of a backward
    are counted as twice those of a forward, although kernels compute the scores once more."""

    forward: float
    backward: float


@dataclass(frozen=True)
class Reached:
    """Shares of its peaks that kernels reach on a GPU."""

    products: float
    """Of the peak of a type, by large matrix products."""
    memory: float
    """Of the memory's rate, by kernels that only move bytes: norms, gates, rotations, updates."""
    flash2: PassShares
    flash1: PassShares
    cudnn: PassShares

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            for share in value if isinstance(value, tuple) else (value,):
                if not 0 < share <= 1:
                    raise ShapeError(
                        f"reached.{each.name} is {share}", hint="give a share above 0, at most 1"
                    )


@dataclass(frozen=True)
class Gpu:
    """One GPU: bytes, and what it does per second."""

    memory: int
    """Bytes that it has."""
    memory_rate: float
    """Bytes per second to and from its own memory."""
    host_rate: float
    """Bytes per second to its host, or from it."""
    cores: int
    """Multiprocessors (SMs, or compute units): tiles of a product that it computes at once."""
    peak: Mapping[str, float] = field(hash=False)
    """Dense FLOPs per second of products, by type of number."""
    reached: Reached
    measured: MeasuredKernels | None = None
    """Rates of its kernels by size, where it was profiled; they count instead of what is above."""

    def __post_init__(self) -> None:
        for name in ("memory", "memory_rate", "host_rate", "cores"):
            _refuse_nothing(f"gpu.{name}", getattr(self, name))
        for name, rate in self.peak.items():
            if name not in PRECISIONS:
                raise ShapeError(f"gpu.peak has no type {name!r}", hint=nearest(name, PRECISIONS))
            _refuse_nothing(f"gpu.peak.{name}", rate)

    def peak_of(self, precision: str) -> float:
        """FLOPs per second in a type."""
        if precision not in self.peak:
            raise ShapeError(
                f"the GPU has no peak for {precision}", hint=f"it has {', '.join(self.peak)}"
            )
        return self.peak[precision]


def _refuse_nothing(name: str, value: float) -> None:
    if not value > 0:
        raise ShapeError(f"{name} is {value}", hint="give a number above 0")
