"""How long a matrix product takes on a GPU.

A product is cut into tiles, and as many of them are computed at once as a GPU has cores. So the
last wave is often not full, and a product of few tiles reaches less of the peak than a large one:
that is what tensor parallelism pays for narrower matrices. It also reads and writes its matrices,
which is what short slices pay for.

    waves = ceil(tiles / cores)
    seconds = waves x tile / rate of a core, or bytes / rate of the memory

The library has kernels of several tiles and takes the fastest. Sources: NVIDIA, "Matrix
Multiplication Background User's Guide" (tile and wave quantization). The rates of smaller tiles are
assumptions: a tile reads (a + b) k numbers for a b k products.
"""

from dataclasses import dataclass

from penstock.cluster.gpu import Gpu

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.95), (128, 64, 0.8), (64, 64, 0.6))
"""Sizes, and the share of the rate of the largest that each reaches."""
KERNEL_START = 3e-6
"""Seconds from one kernel to the next, the filling of the GPU included. Assumption."""


@dataclass(frozen=True)
class Product:
    """[m, k] x [k, n], and bytes of each element of its result."""

    m: int
    n: int
    k: int
    result_bytes: int

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    def seconds(self, gpu: Gpu, rate: float, element_bytes: int) -> float:
        """On a GPU whose cores together do `rate` FLOPs per second in large products."""
        per_core = rate / gpu.cores
        computing = min(
            -(-(-(-self.m // a) * -(-self.n // b)) // gpu.cores) * 2 * a * b * self.k / share
            for a, b, share in TILES
        )
        moved = (self.m + self.n) * self.k * element_bytes + self.m * self.n * self.result_bytes
        return KERNEL_START + max(
            computing / per_core, moved / (gpu.memory_rate * gpu.reached.memory)
        )
