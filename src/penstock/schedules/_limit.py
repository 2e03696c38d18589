"""The memory that a user grants a device, for schedules whose order depends on it."""

from penstock.core.numbers import read_bytes
from penstock.schedules._registry import Option

LIMIT = Option(
    "limit",
    read_bytes,
    default=lambda c: c.p * c.held,
    text="what a device may hold, in the unit of act and stash; that of p microbatches if left out",
    least=0,
)
