"""What every test finds as it should be."""

import sys

import pytest


@pytest.fixture(autouse=True)
def products_as_usual() -> None:
    """On a CPU without products in 16 bits, the first one makes torch take other kernels for all
    that follow in the process, which changes bits: each test begins with the usual ones."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch._C._set_mkldnn_enabled(True)  # its public form warns about Intel's GPUs
