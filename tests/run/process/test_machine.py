"""What there is room for: the least of what the system and each cgroup leaves."""

from pathlib import Path

import pytest

from penstock.errors import ShapeError
from penstock.run.process.machine import PROCESS_BYTES, RANKS_PER_CORE, Machine, this_machine

GB = 10**9


def system(root: Path, files: dict[str, str]) -> Path:
    """A system whose files say this."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


MEMORY = "MemTotal: 99 kB\nMemAvailable:  8000000 kB"


def test_without_cgroups_the_system_says_what_is_free(tmp_path: Path) -> None:
    found = this_machine(system(tmp_path, {"proc/meminfo": MEMORY}))
    assert found.free == 8_000_000 * 1024
    assert found.cores >= 1


def test_a_system_that_says_nothing_refuses_nothing(tmp_path: Path) -> None:
    found = this_machine(tmp_path)
    assert found.free is None
    found.refuse(1, 10**18)


def test_a_cgroup_and_those_above_it_are_limits(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMORY,
        "proc/self/cgroup": "0::/above/own",
        "sys/fs/cgroup/above/memory.max": "5000000000",
        "sys/fs/cgroup/above/memory.current": "4500000000",
        "sys/fs/cgroup/above/memory.stat": "anon 1\ninactive_file 250000000",
        "sys/fs/cgroup/above/own/memory.max": "max",
        "sys/fs/cgroup/above/own/memory.current": "1000",
        "sys/fs/cgroup/above/own/cpu.max": "50000 100000",
    }
    assert this_machine(system(tmp_path, files)) == Machine(cores=0.5, free=750_000_000)


def test_the_first_version_of_cgroups_is_read_too(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMORY,
        "proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "3000000000",
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "1000000000",
        "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "25000",
        "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
    }
    assert this_machine(system(tmp_path, files)) == Machine(cores=0.25, free=2 * GB)


def test_more_processes_than_the_cores_serve_are_refused_with_the_figures() -> None:
    machine = Machine(cores=2, free=None)
    machine.refuse(2 * RANKS_PER_CORE, 0)
    with pytest.raises(ShapeError, match="4,096 processes would share 2 cores") as caught:
        machine.refuse(4096, 0)
    assert caught.value.exit_code == 2
    assert "--force" in caught.value.hint


def test_more_bytes_than_are_free_are_refused_with_the_figures() -> None:
    machine = Machine(cores=8, free=3 * GB)
    machine.refuse(4, 3 * GB - 4 * PROCESS_BYTES)
    with pytest.raises(ShapeError) as caught:
        machine.refuse(4, 3 * GB - 4 * PROCESS_BYTES + 1)
    assert caught.value.message.startswith("4 processes need about 3.0 GB of memory (2.2 GB as")
    assert caught.value.message.endswith("200 MB for each process), but 3.0 GB are free")
