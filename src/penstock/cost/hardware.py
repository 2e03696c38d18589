"""What a device and a link can do per second.

A matrix product, the forward of attention and its backward reach different speeds on one device, so
each kind of work has its own rate. The records below are data-sheet peaks: bounds, not
expectations. What a machine really does comes from measuring it.
"""

from dataclasses import dataclass, fields
from fractions import Fraction

from penstock.errors import ShapeError, nearest


@dataclass(frozen=True)
class Hardware:
    """Rates of one device, and of the links between devices."""

    linear: int
    """FLOPs per second in products with weights."""
    attention: int
    """FLOPs per second in the forward of attention."""
    attention_backward: int
    """FLOPs per second in its backward."""
    memory: int
    """Bytes per second to and from the device's own memory; embeddings run at this rate."""
    host: int
    """Bytes per second between the device and its host; offloads run at this rate."""
    link: int
    """Bytes per second from one device to another of the same machine."""
    latency: Fraction = Fraction(0)
    """Seconds until the first byte arrives."""
    network: int = 50 * 10**9
    """Bytes per second from a device to one of another machine."""
    machine: int = 8
    """Devices of a machine."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 0 or (value == 0 and field.name != "latency"):
                raise ShapeError(
                    f"the rate {field.name} is {value}", hint="rates are per second and above 0"
                )


TERA, GIGA = 10**12, 10**9

HARDWARE: dict[str, Hardware] = {
    "a100": Hardware(
        linear=312 * TERA,
        attention=312 * TERA,
        attention_backward=312 * TERA,
        memory=2039 * GIGA,
        host=32 * GIGA,
        link=300 * GIGA,
        network=25 * GIGA,
    ),
    "h200": Hardware(
        linear=989 * TERA,
        attention=989 * TERA,
        attention_backward=989 * TERA,
        memory=4800 * GIGA,
        host=64 * GIGA,
        link=450 * GIGA,
        network=50 * GIGA,
    ),
}
"""Data sheets of the SXM parts (A100 with 80 GB): dense 16-bit peaks, links in one direction.
Machines as NVIDIA builds them: eight devices, each with a network card of its own, of 200 Gb/s for
the A100 and of 400 Gb/s for the H200."""


def hardware(name: str) -> Hardware:
    """The hardware of that name."""
    if name not in HARDWARE:
        raise ShapeError(f"there is no hardware {name!r}", hint=nearest(name, list(HARDWARE)))
    return HARDWARE[name]
