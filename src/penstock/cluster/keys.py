"""The keys of a cluster file: what each takes, and which number of a cluster it is.

A cluster is a flat list of numbers, each under the path of its key and in the unit that data sheets
use. Reading fills the list, starting from a named cluster where the file says `like`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.cluster.cluster import MOST_GPUS, WIRINGS, Cluster, GpuMachine, NetworkCards
from penstock.cluster.gpu import PRECISIONS, Gpu, PassShares, Reached
from penstock.files.toml_places import Path

TERA, GIGA, GIBI, MICRO = 10**12, 10**9, 2**30, 1e-6
PEAK, REACHED = ("gpu", "peak_tflops"), ("gpu", "reached")
HOST_MEMORY = ("machine", "memory_gib")


class NumberRange(NamedTuple):
    """Numbers from the least to the most; TOML has infinities too."""

    least: float
    most: float

    def has(self, value: Any) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.least <= value <= self.most

    def __str__(self) -> str:
        return " to ".join(f"{end:,}" if isinstance(end, int) else f"{end:g}" for end in self)


_COUNT = NumberRange(1, MOST_GPUS)
_RATE = NumberRange(1e-9, 1e15)
"""Of bytes, also how many there are: one byte is a billionth of a GB."""
_LATENCY = NumberRange(0, 1e15)
_SHARE = NumberRange(1e-9, 1)


class ClusterKey(NamedTuple):
    """What a key takes, in words, and the values that do."""

    name: str
    range: NumberRange = _RATE
    whole: bool = False
    length: int = 0
    """Numbers of a list; 0: no list."""
    words: tuple[str, ...] = ()

    @property
    def wanted(self) -> str:
        return self.name if self.words else f"{self.name}, from {self.range}"

    def takes(self, value: Any) -> bool:
        if self.words:
            return value in self.words
        if self.length:
            long = isinstance(value, list) and len(value) == self.length
            return long and all(map(self.range.has, value))
        return self.range.has(value) and (isinstance(value, int) or not self.whole)


_SHARES = ClusterKey(
    "two shares of the peak, forward and backward, as [0.7, 0.5]", _SHARE, length=2
)
KEYS: Mapping[Path, ClusterKey] = {
    ("gpus",): ClusterKey("a whole number of GPUs", _COUNT, whole=True),
    ("gpu", "memory_gib"): ClusterKey("memory of a GPU in GiB"),
    ("gpu", "memory_gb_per_second"): ClusterKey("rate of its memory in GB/s"),
    ("gpu", "host_gb_per_second"): ClusterKey("rate of copies to the host, one way, in GB/s"),
    ("gpu", "cores"): ClusterKey("a whole number of multiprocessors", _COUNT, whole=True),
    **{(*PEAK, name): ClusterKey(f"dense peak in {name} in TFLOP/s") for name in PRECISIONS},
    (*REACHED, "products"): ClusterKey("share of the peak that large products reach", _SHARE),
    (*REACHED, "memory"): ClusterKey("share of the memory's rate that kernels reach", _SHARE),
    **{(*REACHED, name): _SHARES for name in ("flash2", "flash1", "cudnn")},
    ("machine", "gpus"): ClusterKey("a whole number of GPUs in a machine", _COUNT, whole=True),
    ("machine", "gb_per_second"): ClusterKey(
        "what a GPU sends to the others of its machine, in GB/s"
    ),
    ("machine", "latency_us"): ClusterKey(
        "microseconds of a step of a collective in a machine", _LATENCY
    ),
    ("machine", "wiring"): ClusterKey("switch or direct", words=WIRINGS),
    HOST_MEMORY: ClusterKey("memory of the host of a machine in GiB", NumberRange(0, 1e15)),
    ("network", "cards"): ClusterKey(
        "a whole number of network cards of a machine", _COUNT, whole=True
    ),
    ("network", "gb_per_second"): ClusterKey("what a card sends, in GB/s"),
    ("network", "latency_us"): ClusterKey(
        "microseconds of a step of a collective between machines", _LATENCY
    ),
}


def values_of(cluster: Cluster) -> dict[Path, Any]:
    """What a file would say of a cluster."""
    gpu, machine, network = cluster.gpu, cluster.machine, cluster.network
    reached = {(*REACHED, name): getattr(gpu.reached, name) for name in Reached.__annotations__}
    return {
        ("gpus",): cluster.gpus,
        ("gpu", "memory_gib"): gpu.memory / GIBI,
        ("gpu", "memory_gb_per_second"): gpu.memory_rate / GIGA,
        ("gpu", "host_gb_per_second"): gpu.host_rate / GIGA,
        ("gpu", "cores"): gpu.cores,
        **{(*PEAK, name): rate / TERA for name, rate in gpu.peak.items()},
        **{key: [*value] if isinstance(value, tuple) else value for key, value in reached.items()},
        ("machine", "gpus"): machine.gpus,
        ("machine", "gb_per_second"): machine.rate / GIGA,
        ("machine", "latency_us"): machine.latency / MICRO,
        ("machine", "wiring"): machine.wiring,
        HOST_MEMORY: machine.memory / GIBI,
        ("network", "cards"): network.cards,
        ("network", "gb_per_second"): network.rate / GIGA,
        ("network", "latency_us"): network.latency / MICRO,
    }


def cluster_of(name: str, values: Mapping[Path, Any]) -> Cluster:
    """The cluster that the values of all keys stand for."""
    reached = {key[-1]: value for key, value in values.items() if key[:-1] == REACHED}
    passes = {key: PassShares(*value) for key, value in reached.items() if isinstance(value, list)}
    gpu = Gpu(
        memory=int(values["gpu", "memory_gib"] * GIBI),
        memory_rate=values["gpu", "memory_gb_per_second"] * GIGA,
        host_rate=values["gpu", "host_gb_per_second"] * GIGA,
        cores=values["gpu", "cores"],
        peak={key[-1]: value * TERA for key, value in values.items() if key[:-1] == PEAK},
        reached=Reached(**(reached | passes)),
    )
    machine = GpuMachine(
        values["machine", "gpus"],
        values["machine", "gb_per_second"] * GIGA,
        values["machine", "latency_us"] * MICRO,
        values["machine", "wiring"],
        int(values.get(HOST_MEMORY, 0) * GIBI),
    )
    network = NetworkCards(
        values["network", "cards"],
        values["network", "gb_per_second"] * GIGA,
        values["network", "latency_us"] * MICRO,
    )
    return Cluster(name, gpu, machine, network, values["gpus",])
