"""What the kernels of a step do, by their names, and where none runs.

A step is not faster than its kernels. The rest is time in which the GPU has nothing to do: before
a kernel that the host launches too late, or while the host waits for a number.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from string import digits
from typing import Any, NamedTuple

LONG_GAP = 20e-6
"""Seconds above which the host was late: a GPU starts a waiting kernel within a few us."""

OTHER = "other"


class GpuKernel(NamedTuple):
    """One kernel, copy or fill on the GPU."""

    name: str
    op: str
    """The op that launched it, as 0F2.1; empty for what belongs to no op."""
    start: float
    """Seconds."""
    seconds: float

    @property
    def kind(self) -> str:
        """Of its op, after the number of the stage; empty without one."""
        return self.op.lstrip(digits)[:1]

    @property
    def end(self) -> float:
        return self.start + self.seconds


class ClassRule(NamedTuple):
    """Kernels of one class: by the kinds of the ops that launch them, by their names."""

    label: str
    pattern: str
    """Found in a name; capitals make no difference."""
    kinds: str = ""
    """Kinds of ops whose kernels are meant; empty: all, and what belongs to no op."""


CLASSES = (
    # All that the end of a step does is the optimizer's: norm, clipping, update, publication.
    ClassRule("optimizer", "", "ZVU"),
    # Before products: some kernels of attention are named after the matrix library they use.
    ClassRule("attention", "cudnn|sdpa|fmha|flash|attention"),
    ClassRule("products", "gemm|cutlass|nvjet|cublas|split_?k|gemv"),
    ClassRule("head loss", "^_loss_|softmax|nll_loss|cross_entropy"),
    # The gradient of a norm's weight is summed over the programs of the kernel before it.
    ClassRule("norms", "^_norm_|rms_?norm|layer_?norm|reduce_kernel"),
    ClassRule("gate", "^_swiglu_|silu"),
    ClassRule("rotation", "^_turn|rope|rotary"),
    # Gradients of equal words are sorted before they are added, so that their order is always one.
    ClassRule("embedding", "index|embedding|gather|scatter|radix|sort|cub::"),
    ClassRule("copies and fills", "memcpy|memset|copy|fill|catarray"),
)
"""The first rule that fits decides."""

LABELS = (*(rule.label for rule in CLASSES), OTHER)


def class_of(kernel: GpuKernel) -> str:
    """The class of a kernel."""
    for rule in CLASSES:
        launched = not rule.kinds or (kernel.kind and kernel.kind in rule.kinds)
        if launched and re.search(rule.pattern, kernel.name, re.IGNORECASE):
            return rule.label
    return OTHER


def breakdown_of(kernels: Sequence[GpuKernel], step_seconds: float) -> dict[str, Any]:
    """Seconds by class, idle time, gaps inside ops, and kernels that no class knows."""
    classes = dict.fromkeys(LABELS, 0.0)
    unknown: dict[str, float] = defaultdict(float)
    for kernel in kernels:
        label = class_of(kernel)
        classes[label] += kernel.seconds
        if label == OTHER:
            unknown[kernel.name] += kernel.seconds
    gaps = list(gaps_inside(kernels))
    largest = max(gaps, default=(0.0, ""))
    return {
        "step_seconds": step_seconds,
        "classes": classes,
        "idle": step_seconds - busy_seconds(kernels),
        "largest_gap": largest[0],
        "largest_gap_in": largest[1],
        "long_gaps": sum(seconds > LONG_GAP for seconds, _ in gaps),
        "kernels": len(kernels),
        "unknown": dict(sorted(unknown.items(), key=lambda item: -item[1])),
    }


def busy_seconds(kernels: Sequence[GpuKernel]) -> float:
    """Time in which at least one kernel runs."""
    total, until = 0.0, float("-inf")
    for kernel in sorted(kernels, key=lambda kernel: kernel.start):
        total += max(0.0, kernel.end - max(kernel.start, until))
        until = max(until, kernel.end)
    return total


def gaps_inside(kernels: Sequence[GpuKernel]) -> Iterator[tuple[float, str]]:
    """Times between kernels of the same op, in which none runs, with the op."""
    for op, inside in groupby(sorted(kernels, key=_by_op_and_start), lambda kernel: kernel.op):
        if not op:
            continue
        until: float | None = None
        for kernel in inside:
            if until is not None and kernel.start > until:
                yield kernel.start - until, op
            until = kernel.end if until is None else max(until, kernel.end)


def _by_op_and_start(kernel: GpuKernel) -> tuple[str, float]:
    return kernel.op, kernel.start
