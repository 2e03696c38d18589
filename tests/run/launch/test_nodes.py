"""Two nodes under torchrun, each with its own network."""

import os
import sys
from collections.abc import Iterator

import pytest

from run.launch.nodes import Nodes, two_nodes

pytestmark = pytest.mark.torch


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with two_nodes() as both:
        yield both


@pytest.mark.matrix
def test_ranks_of_two_nodes_run_one_program(nodes: Nodes) -> None:
    program = ["-m", "run.faults.toy", "3", "nothing"]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    first, second = nodes.torchrun(program, environment=path)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert sorted([first.out[:4], second.out[:4]]) == ["", "sum "]
