"""Where fused kernels are used: on a GPU, in the types they know, where Triton can build them.

Triton comes with PyTorch for CUDA. Without it, or without a C compiler for its launchers, layers
take PyTorch's own kernels: slower, with the same results within rounding.
"""

import os
from functools import cache
from importlib.util import find_spec
from shutil import which

import torch
from torch import Tensor

TYPES = (torch.bfloat16, torch.float16, torch.float32)
"""64 bits are for comparisons, and keep PyTorch's kernels."""

PLAIN_KERNELS = "PENSTOCK_PLAIN_KERNELS"
"""A variable of the environment; where it is set, no kernel of this folder is used. It is for
comparing both."""

COMPILERS = ("cc", "gcc", "clang")


def fusible(x: Tensor) -> bool:
    """Whether work on this tensor is done by the kernels of this folder."""
    return fuses(x.device, x.dtype)


def fuses(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether work on such tensors is."""
    plain = os.environ.get(PLAIN_KERNELS)
    return device.type == "cuda" and dtype in TYPES and not plain and has_triton()


@cache
def has_triton() -> bool:
    """Whether kernels can be built here."""
    return find_spec("triton") is not None and any(map(which, _compilers()))


def _compilers() -> tuple[str, ...]:
    return (os.environ.get("CC", ""), *COMPILERS)
