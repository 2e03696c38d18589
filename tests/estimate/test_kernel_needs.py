"""A layout needs what the kernels of a run need for a while."""

import pytest

from estimate.layouts import row
from penstock.cost.temporary import GPU_KERNELS, PLAIN_GPU_KERNELS, KernelNeeds
from penstock.estimate.kernel_needs import kernel_needs
from penstock.estimate.request import layout_from


@pytest.mark.parametrize(
    ("precision", "fused", "needs"),
    [
        ("bf16", True, GPU_KERNELS),
        ("bf16", False, PLAIN_GPU_KERNELS),
        ("fp32", True, PLAIN_GPU_KERNELS),
    ],
)
def test_attention_in_32_bits_needs_what_plain_products_do(
    precision: str, fused: bool, needs: KernelNeeds
) -> None:
    layout = layout_from(row(precision=precision, fused_norm=fused, attention="unfused"))
    assert kernel_needs(layout) is needs
