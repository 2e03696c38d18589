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

Experts have matrices of their own, and each has the rows of its tokens alone: as many products that
are short, all of whose matrices are read. One kernel may have the tiles of all of them, which then
share waves; or they are kernels one after the other.

A weight gradient adds to numbers of 32 bits. A tile reads and writes them when its products are
there, and part of that is not hidden behind other tiles: it is what microbatches of few tokens pay
for, since k are the tokens. On an H200 a gradient [27648, 5120] of 2,048, 4,096 and 8,192 tokens
took 943, 1,822 and 3,480 us in 32 bits (`addmm` with `out_dtype`), and 797, 1,729 and 3,370 us
written in 16 bits; the 8 bytes of each number alone would take 303 us.
"""

from typing import NamedTuple

from penstock.cluster.gpu import Gpu

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.95), (128, 64, 0.8), (64, 64, 0.6))
"""Sizes, and the share of the rate of the largest that each reaches."""
KERNEL_START = 3e-6
"""Seconds from one kernel to the next, the filling of the GPU included. Assumption."""
GROUPED_GRADIENT = 0.62
"""Share of the rate of other products that one kernel reaches which adds up gradients of several
experts, and hides nothing of the numbers that it adds to (model/kernels/expert_gradient.py). On an
H200 gradients [1536, 2048] of 128 experts took 1.24, 1.69 and 4.11 ms of 128, 512 and 2,048 rows
each, [2048, 768] 0.66, 0.86 and 2.06 ms."""
ADDED_EXPOSED = 0.41
"""Share of the time of the numbers that a product adds to that is not hidden: 0.30 to 0.75 for
gradients of four matrices of 26 to 142 million elements and 2,048 to 8,192 tokens on an H200, as
above; half of them are below this. That it is the same on other GPUs is an assumption."""


class Product(NamedTuple):
    """[m, k] x [k, n], and bytes that each element of its result moves."""

    m: int
    n: int
    k: int
    result_bytes: int
    adds: bool = False
    """Whether it adds to its result, which is read and written."""
    together: int = 1
    """Products of this size that are one kernel, each with a matrix of its own."""
    kernels: int = 1
    """Such kernels, one after the other."""

    def dealt(self, groups: int, kernels: int) -> "Product":
        """So many of this size, dealt to kernels."""
        return self if groups == 1 else self._replace(together=groups // kernels, kernels=kernels)

    @property
    def groups(self) -> int:
        """Products of this size."""
        return self.together * self.kernels

    @property
    def flops(self) -> int:
        """Of all of them."""
        return 2 * self.m * self.n * self.k * self.groups

    def seconds(self, gpu: Gpu, rate: float, element_bytes: int) -> float:
        """On a GPU whose cores together do `rate` FLOPs per second in large products."""
        per_core = rate / gpu.cores
        sizes = [(self._waves(a, b, gpu) * 2 * a * b * self.k, share) for a, b, share in TILES]
        computing = min([flops / share for flops, share in sizes])
        memory_rate = gpu.memory_rate * gpu.reached.memory
        result = self.m * self.n * self.together * self.result_bytes
        moved = (self.m + self.n) * self.k * self.together * element_bytes + result
        exposed = ADDED_EXPOSED * self.adds * result / memory_rate
        if self.adds and self.together > 1:
            per_core, exposed = GROUPED_GRADIENT * per_core, result / memory_rate
        own = KERNEL_START + max(computing / per_core + exposed, moved / memory_rate)
        return self.kernels * own

    def _waves(self, a: int, b: int, gpu: Gpu) -> int:
        """Of a kernel, with tiles of that size."""
        return -(-self.together * -(-self.m // a) * -(-self.n // b) // gpu.cores)
