"""Two machines on one: two network namespaces, joined by a virtual cable.

Each side sees only its own end of the cable, as two hosts do, so that a program that names the
wrong interface or address fails here as it would there.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pytest

PORT = 29400


class Node(NamedTuple):
    """One side: its namespace, its end of the cable and its address."""

    name: str
    interface: str
    address: str


class Finished(NamedTuple):
    """What torchrun left behind on one side."""

    code: int
    out: str
    err: str


class Nodes:
    """Both sides."""

    def __init__(self, first: Node, second: Node) -> None:
        self.sides = (first, second)

    def torchrun(
        self,
        program: Sequence[str],
        *,
        ranks: int = 1,
        limit: float = 120.0,
        environment: Mapping[str, str] | None = None,
    ) -> list[Finished]:
        """`torchrun ... PROGRAM` on both sides at once, with that many ranks on each."""
        running = [
            subprocess.Popen(
                [*_inside(node), *self._command(node, ranks), *program],
                env={**os.environ, **(environment or {}), "GLOO_SOCKET_IFNAME": node.interface},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for node in self.sides
        ]
        try:
            return [
                Finished(process.returncode, *said)
                for process, said in [(each, each.communicate(timeout=limit)) for each in running]
            ]
        finally:
            for process in running:
                process.kill()
                process.communicate()

    def _command(self, node: Node, ranks: int) -> list[str]:
        return [
            *(sys.executable, "-m", "torch.distributed.run"),
            *("--nnodes", "2", "--nproc-per-node", str(ranks)),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{self.sides[0].address}:{PORT}"),
            *("--rdzv-conf", f"is_host={int(node == self.sides[0])}"),
            *("--local-addr", node.address),
        ]


def _inside(node: Node) -> list[str]:
    return ["ip", "netns", "exec", node.name]


@contextmanager
def two_nodes() -> Iterator[Nodes]:
    """Two sides that are there for the block; the test is skipped where they are not permitted."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need the command ip (iproute2)")
    mark = os.getpid()
    first = Node(f"penstock-{mark}-a", f"pa{mark}", "10.77.0.1")
    second = Node(f"penstock-{mark}-b", f"pb{mark}", "10.77.0.2")
    try:
        _set_up(first, second)
        yield Nodes(first, second)
    finally:
        for node in (first, second):
            subprocess.run(["ip", "netns", "del", node.name], capture_output=True, check=False)


def _set_up(first: Node, second: Node) -> None:
    for node in (first, second):
        _ip("netns", "add", node.name)
    _ip("link", "add", first.interface, "type", "veth", "peer", "name", second.interface)
    for node in (first, second):
        _ip("link", "set", node.interface, "netns", node.name)
        _ip("-n", node.name, "addr", "add", f"{node.address}/24", "dev", node.interface)
        _ip("-n", node.name, "link", "set", node.interface, "up")
        _ip("-n", node.name, "link", "set", "lo", "up")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"network namespaces are not permitted here: {done.stderr.strip()}")
