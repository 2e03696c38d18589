"""`penstock train` on two nodes, each with its own network and its own ranks."""

import os
import sys
from collections.abc import Iterator

import pytest

from run.launch.nodes import Nodes, two_nodes
from train.runs.ranks import LIMIT, Ran, Setting

pytestmark = [pytest.mark.torch, pytest.mark.matrix]  # every rank imports torch


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with two_nodes() as both:
        yield both


def test_two_nodes_train_what_one_trains(nodes: Nodes, setting: Setting, undisturbed: Ran) -> None:
    program = ["-m", "penstock", *setting.words(name="two-nodes")]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    first, second = nodes.torchrun(program, limit=LIMIT, environment=path)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert Ran(setting.folder / "two-nodes", (), ()).records == undisturbed.records
    shown = [node.err.count("step 8/8") for node in (first, second)]
    assert sorted(shown) == [0, 1]  # only the node that has rank 0 speaks
    picture = "mesh        device 2\n  machine 0   device 0: [0]\n  machine 1   device 1: [1]\n"
    assert picture in first.err + second.err
