"""The NCCL that this process has loaded.

Torch names the one that it was built with. Another one may be put in its place when a process is
started (LD_PRELOAD), so the loaded library is asked.
"""

import ctypes
import os

import torch

LIBRARY = "libnccl.so.2"


def nccl_version() -> tuple[int, int]:
    """The first two numbers of its version; zeros where there is none."""
    try:
        library = ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        code = ctypes.c_int()
        library.ncclGetVersion(ctypes.byref(code))
    except (OSError, AttributeError):
        return _built_with()
    return code.value // 10_000, code.value // 100 % 100


def _built_with() -> tuple[int, int]:
    """Where NCCL is a part of torch's own library."""
    if not hasattr(torch._C, "_nccl_version"):
        return 0, 0
    major, minor, *_ = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    return major, minor
