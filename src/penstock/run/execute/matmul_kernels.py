"""Which kernels the host multiplies matrices with, whatever the process has multiplied before.

On a processor without products of bfloat16, the first one makes torch warn at length and give up
oneDNN for everything that follows in the process, which changes bits of later products in float32.
The same step must have the same result in any process, so every run of a lane says what it wants
before it starts.
"""

import torch


def settle_products(dtype: torch.dtype) -> None:
    """Use oneDNN, except for what it would refuse on this processor."""
    # The public form of the switch warns about GPUs that nobody asked for.
    torch._C._set_mkldnn_enabled(dtype != torch.bfloat16 or _multiplies_bfloat16())


def _multiplies_bfloat16() -> bool:
    return torch._C._has_mkldnn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
