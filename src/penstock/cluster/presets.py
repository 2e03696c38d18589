"""Clusters by name. Every constant has its source here, or is called an assumption.

Data sheets
    A100   NVIDIA A100 Tensor Core GPU data sheet (SXM): 312 TFLOP/s in 16 bits, 19.5 in 32; 40 GB
           at 1,555 GB/s, 80 GB at 2,039 GB/s; NVLink 600 GB/s both ways; PCIe 4 64 GB/s both ways;
           108 SMs. DGX A100: 8 GPUs, 8 cards of 200 Gb/s; a host of 1 TB for 40 GB, 2 TB for 80 GB.
    H100   NVIDIA H100 data sheet (SXM): 989 TFLOP/s dense in 16 bits (1,979 with sparsity), 67 in
           32; 80 GB at 3.35 TB/s; NVLink 900 GB/s both ways; PCIe 5 128 GB/s both ways; 132 SMs.
           DGX H100: 8 GPUs, 8 cards of 400 Gb/s; a host of 2 TB.
    H200   NVIDIA H200 data sheet (SXM): as H100 with 141 GB at 4.8 TB/s. DGX H200: a host of 2 TB.
    B200   NVIDIA DGX B200 data sheet, one of 8 GPUs: 2,250 TFLOP/s dense in 16 bits, 75 in 32;
           180 GB at 8 TB/s; NVLink 1,800 GB/s both ways; PCIe 5; 8 cards of 400 Gb/s. 148 SMs. A
           host of 2 TB, which can be 4.
    MI300X AMD Instinct MI300X data sheet: 1,307 TFLOP/s dense in 16 bits, 163.4 in 32; 192 GB at
           5.3 TB/s; 7 links of 128 GB/s both ways, one to each of the others; PCIe 5; 304 compute
           units. Platform of 8; a card of 400 Gb/s for each and a host of 2 TB are assumptions.

"GB" of a memory are 2^30 bytes, as drivers report them, and "TB" 2^40; those of a rate are 10^9 and
10^12.

Latencies of a step are those of NCCL's own model (src/graph/tuning.cc, protocol Simple): 3.4 us
over NVLink, 14 us over a network. For AMD the same is an assumption.

Shares that kernels reach, one kernel at a time
    products   The largest share found over many shapes in 16 bits ("Maximum Achievable Matmul
               FLOPS" of the ML Engineering Open Book, github.com/stas00/ml-engineering,
               compute/accelerator): A100 0.869, H100 and H200 0.803, B200 0.776, MI300X 0.514. Ours
               on an H200: 790 TFLOP/s, 0.80. In 32 bits the same is an assumption.
    memory     0.78: fused kernels move 3.3 to 4.2 of 4.8 TB/s on an H200 (docs/benchmarks.md). The
               same on other GPUs is an assumption.
    attention  FlashAttention 2 on A100: 0.73 forward, 0.63 backward (arXiv:2307.08691, section 1,
               with 2.5 times the forward's FLOPs; 0.504 of twice). FlashAttention 1 on A100: the
               middle of 0.30 to 0.50 and of 0.25 to 0.35 (same section). On H200, measured with 32
               heads of 128 at 32,768 tokens: FlashAttention 2 25.2 and 68.7 ms, cuDNN 13.5 and
               41.4 ms (the latter in docs/benchmarks.md). The rest is assumed: FlashAttention 1 on
               a newer GPU is as much slower than 2 as on A100; cuDNN on A100 is as fast as
               FlashAttention 2; H100 and B200 are as H200; MI300X is as FlashAttention 2 on H200.

In a step a GPU is at its power limit, and its clock is lower than in a measurement of one kernel
(1.68 instead of 1.98 GHz on an H200). There a step of llama3.2-1b with 4 slices spends 342 ms in
products and 508 ms in attention (docs/benchmarks.md), where kernels one by one would take 314 and
483 ms. So shares are multiplied by 0.92 and 0.95. That other GPUs lose as much is an assumption.
"""

from dataclasses import replace

from penstock.cluster.cluster import Cluster, GpuMachine, NetworkCards, Wiring
from penstock.cluster.gpu import Gpu, PassShares, Reached
from penstock.errors import ShapeError, nearest

TERA, GIGA, TEBI, GIBI, MICRO = 10**12, 10**9, 2**40, 2**30, 1e-6
NVLINK_LATENCY, NETWORK_LATENCY = 3.4 * MICRO, 14 * MICRO

PRODUCTS_IN_STEP, ATTENTION_IN_STEP = 0.92, 0.95

_A100_FLASH = PassShares(0.73, 0.63 * 2 / 2.5)
_A100_FLASH_1 = PassShares(0.40, 0.30 * 2 / 2.5)
_FLASH_FLOPS = 4 * 32 * 128 * 32768**2 / 2
"""Of the forward whose time is in the docstring."""
_H200_FLASH = PassShares(_FLASH_FLOPS / 25.2e-3 / 989e12, 2 * _FLASH_FLOPS / 68.7e-3 / 989e12)
_H200_CUDNN = PassShares(_FLASH_FLOPS / 13.5e-3 / 989e12, 2 * _FLASH_FLOPS / 41.4e-3 / 989e12)
_H200_FLASH_1 = PassShares(
    _H200_FLASH.forward * _A100_FLASH_1.forward / _A100_FLASH.forward,
    _H200_FLASH.backward * _A100_FLASH_1.backward / _A100_FLASH.backward,
)
_MEMORY = 0.78


def _in_step(products: float, flash2: PassShares, flash1: PassShares, cudnn: PassShares) -> Reached:
    """Shares that kernels reach one by one, as they are in a step."""
    kernels = (
        PassShares(*(ATTENTION_IN_STEP * share for share in each))
        for each in (flash2, flash1, cudnn)
    )
    return Reached(PRODUCTS_IN_STEP * products, _MEMORY, *kernels)


_ON_A100 = _in_step(0.869, _A100_FLASH, _A100_FLASH_1, _A100_FLASH)
_ON_H100 = _in_step(0.803, _H200_FLASH, _H200_FLASH_1, _H200_CUDNN)
_ON_B200 = _in_step(0.776, _H200_FLASH, _H200_FLASH_1, _H200_CUDNN)
_ON_MI300X = _in_step(0.514, _H200_FLASH, _H200_FLASH_1, _H200_FLASH)


def _peaks(half: float, single: float) -> dict[str, float]:
    return {"bf16": half * TERA, "fp16": half * TERA, "fp32": single * TERA}


_A100 = Gpu(80 * GIBI, 2039 * GIGA, 32 * GIGA, 108, _peaks(312, 19.5), _ON_A100)
_H100 = Gpu(80 * GIBI, 3350 * GIGA, 64 * GIGA, 132, _peaks(989, 67), _ON_H100)
_B200 = Gpu(180 * GIBI, 8000 * GIGA, 64 * GIGA, 148, _peaks(2250, 75), _ON_B200)
_MI300X = Gpu(192 * GIBI, 5300 * GIGA, 64 * GIGA, 304, _peaks(1307, 163.4), _ON_MI300X)


def _of_eight(
    name: str, gpu: Gpu, link: int, card: int, host: int, wiring: Wiring = "switch"
) -> tuple[str, Cluster]:
    """A machine of eight with a card for each, and a host of so many TiB."""
    machine = GpuMachine(8, link * GIGA, NVLINK_LATENCY, wiring, host * TEBI)
    network = NetworkCards(8, card * GIGA, NETWORK_LATENCY)
    return name, Cluster(name, gpu, machine, network, gpus=8)


CLUSTERS: dict[str, Cluster] = dict(
    (
        _of_eight("a100-40", replace(_A100, memory=40 * GIBI, memory_rate=1555 * GIGA), 300, 25, 1),
        _of_eight("a100-80", _A100, 300, 25, 2),
        _of_eight("h100", _H100, 450, 50, 2),
        _of_eight("h200", replace(_H100, memory=141 * GIBI, memory_rate=4800 * GIGA), 450, 50, 2),
        _of_eight("b200", _B200, 900, 50, 2),
        _of_eight("mi300x", _MI300X, 448, 50, 2, "direct"),
    )
)
"""One machine of each kind."""


def preset_cluster(name: str) -> Cluster:
    """A machine of that name."""
    if name not in CLUSTERS:
        raise ShapeError(
            f"no cluster is called {name!r}",
            hint=f"{nearest(name, list(CLUSTERS))} (a file of your own ends in .toml)",
        )
    return CLUSTERS[name]
