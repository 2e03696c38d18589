"""What this machine has for a run: cores and free memory, within the limits of its cgroups.

A container sees the whole machine and may use a part of it; a process that takes more is slowed
down or killed. So the least of what the system, the affinity and each cgroup above us leave counts.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ShapeError

PROCESS_BYTES = 200 * 10**6
"""What a process with torch takes before it holds a tensor, its shared libraries apart."""
RANKS_PER_CORE = 32
"""Processes that one core serves before they only wait for each other."""


@dataclass(frozen=True)
class Machine:
    """Cores that may be used, and bytes that are free; None where the system does not say."""

    cores: float
    free: int | None = None

    def refuse(self, processes: int, held: int) -> None:
        """Refuse more processes, or more bytes held by all of them, than there is room for."""
        if processes > RANKS_PER_CORE * self.cores:
            raise ShapeError(
                f"{processes:,} processes would share {self.cores:g} cores, more than "
                f"{RANKS_PER_CORE} on each",
                hint="use fewer devices or replicas, or start anyway with --force",
            )
        needed = held + processes * PROCESS_BYTES
        if self.free is not None and needed > self.free:
            raise ShapeError(
                f"{processes:,} {'process needs' if processes == 1 else 'processes need'} about "
                f"{_amount(needed)} of memory ({_amount(held)} as predicted, "
                f"{_amount(PROCESS_BYTES)} for each process), but {_amount(self.free)} are free",
                hint="make the model, the sequences or the batch smaller, or start anyway "
                "with --force",
            )


def this_machine(root: Path = Path("/")) -> Machine:
    """What there is here; `root` is where /proc and /sys are."""
    cores = [float(len(os.sched_getaffinity(0)))]
    free = [found for found in [_available(root)] if found is not None]
    for group in _cgroups(root):
        cores += _quota(group)
        free += _room(group)
    return Machine(min(cores), min(free, default=None))


def _available(root: Path) -> int | None:
    """Bytes that the system could give, caches that it would drop included."""
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) * 1024
    return None


def _cgroups(root: Path) -> Iterator[Path]:
    """Folders of the cgroups that this process is in, and of those above them."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            base = root / "sys/fs/cgroup" / controller
            inner = base / path.lstrip("/")
            yield from (inner, *(above for above in inner.parents if above.is_relative_to(base)))


def _quota(group: Path) -> list[float]:
    """Cores that a cgroup may use: time of the processor in each period of time."""
    quota, period = (*_text(group / "cpu.max").split(), "", "")[:2]
    if not quota:  # the first version of cgroups has two files
        quota, period = (_text(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    numbers = quota.isdecimal() and period.isdecimal() and int(period)
    return [int(quota) / int(period)] if numbers else []


def _room(group: Path) -> list[int]:
    """Bytes that a cgroup has left, files that the system would drop from memory included."""
    for limit, used in (("max", "current"), ("limit_in_bytes", "usage_in_bytes")):
        most, taken = (_text(group / f"memory.{name}") for name in (limit, used))
        if most.isdecimal() and taken.isdecimal():
            return [max(0, int(most) - int(taken) + _droppable(group))]
    return []


def _droppable(group: Path) -> int:
    for line in _text(group / "memory.stat").splitlines():
        name, _, amount = line.partition(" ")
        if name == "inactive_file" and amount.isdecimal():
            return int(amount)
    return 0


def _text(path: Path) -> str:
    """What a file of the system says; empty where it is not there."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _amount(count: int) -> str:
    """Bytes in the unit that people say.

    >>> _amount(1_500_000_000), _amount(200_000_000)
    ('1.5 GB', '200 MB')
    """
    for unit, size in (("PB", 10**15), ("TB", 10**12), ("GB", 10**9)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 10**6:,.0f} MB"
