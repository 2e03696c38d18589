"""Clusters by name and from files; what is wrong with a file is told with its place."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cluster.keys import cluster_of, values_of
from penstock.cluster.presets import CLUSTERS
from penstock.cluster.read import cluster_from, read_cluster
from penstock.errors import ShapeError


def test_a_name_has_a_number_of_gpus() -> None:
    assert read_cluster("h100:64") == replace(CLUSTERS["h100"], gpus=64)
    assert read_cluster("a100-40").gpus == 8


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_cluster_is_what_its_keys_say(name: str) -> None:
    assert cluster_of(name, values_of(CLUSTERS[name])) == CLUSTERS[name]


def test_a_file_says_what_differs(tmp_path: Path) -> None:
    file = tmp_path / "ours.toml"
    file.write_text('like = "h100"\ngpus = 32\n[network]\ncards = 4\n')
    found = read_cluster(str(file))
    assert (found.text, found.network.cards, found.gpu) == ("ours:32", 4, CLUSTERS["h100"].gpu)
    assert read_cluster(f"{file}:128").gpus == 128


WHOLE = """
gpus = 16
[gpu]
memory_gib = 24
memory_gb_per_second = 936
host_gb_per_second = 32
cores = 82
peak_tflops = {bf16 = 71}
[gpu.reached]
products = 0.8
memory = 0.8
flash2 = [0.6, 0.5]
flash1 = [0.4, 0.3]
cudnn = [0.6, 0.5]
[machine]
gpus = 4
gb_per_second = 56.2
latency_us = 3.4
wiring = "direct"
[network]
cards = 1
gb_per_second = 12.5
latency_us = 14
"""


def test_a_file_may_say_everything() -> None:
    found = cluster_from(WHOLE, "own")
    assert (found.gpus, found.gpu.peak, found.machine.wiring) == (16, {"bf16": 71e12}, "direct")


MISTAKES = {
    "line 1, column 1: like is 'h10', which is not a cluster": 'like = "h10"',
    "line 1, column 1: like is ['h100'], which is not a cluster": 'like = ["h100"]',
    "line 1, column 1: like is {'a': 1}, which is not a cluster": "like = {a = 1}",
    "line 3, column 1: the key 'gpu.memry_gib' is not known": 'like="h100"\n[gpu]\nmemry_gib = 3',
    "line 3, column 3: gpu.cores is 'a'": 'like="h100"\n[gpu]\n  cores = "a"',
    "line 2, column 1: gpu is a table, and not a value": 'like = "h100"\ngpu = 3',
    "line 3, column 1: network.cards is True": 'like = "h100"\n[network]\ncards = true',
    "line 2, column 9: network.gb_per_second is inf": 'like = "h100"\nnetwork.gb_per_second = inf',
    "line 3, column 1: machine.wiring is 'star'": 'like = "h100"\n[machine]\nwiring = "star"',
    "line 3, column 1: gpu.reached.products is 2.0": 'like = "h100"\n[gpu.reached]\nproducts = 2.0',
    "line 3, column 1: machine.gpus is 0": 'like = "h100"\n[machine]\ngpus = 0',
    "line 2, column 1: gpus is 0": 'like = "h100"\ngpus = 0',
    "line 2, column 9: network.gb_per_second is 0": 'like = "h100"\nnetwork.gb_per_second = 0',
    "line 2, column 9: network.cards is 9999999": 'like = "h100"\nnetwork.cards = 9999999',
    "line 2, column 9: machine.latency_us is -1": 'like = "h100"\nmachine.latency_us = -1',
    "line 2, column 5: gpu.memory_gib is 0": 'like = "h100"\ngpu.memory_gib = 0',
    "line 2, column 5: gpu.memory_gib is nan": 'like = "h100"\ngpu.memory_gib = nan',
    "gpu.peak_tflops.bf16 is 0": 'like = "h100"\ngpu.peak_tflops.bf16 = 0',
    "gpu.reached.flash2 is [0.5, 0]": 'like = "h100"\ngpu.reached.flash2 = [0.5, 0]',
    "x.toml says nothing of gpu.memory_gib, ": "gpus = 8",
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_told_with_its_place(message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        cluster_from(MISTAKES[message], "x", "x.toml")
    assert message in caught.value.message
    assert caught.value.hint


def test_several_mistakes_are_told_in_the_order_of_the_file() -> None:
    with pytest.raises(ShapeError) as caught:
        cluster_from('like = "h100"\n[machin]\ngpus = 8\n[gpu]\ncores = 1.5\n', "x", "x.toml")
    assert caught.value.message.splitlines() == [
        "x.toml has 2 mistakes",
        "  line 3, column 1: the key 'machin.gpus' is not known; did you mean 'machine'?",
        "  line 5, column 1: gpu.cores is 1.5; give a whole number of multiprocessors, "
        "from 1 to 1,048,576",
    ]


def test_a_number_that_is_too_small_is_answered_with_the_least_and_the_most() -> None:
    with pytest.raises(ShapeError) as caught:
        cluster_from('like = "h100"\n[gpu]\nmemory_gib = 0\n', "x", "x.toml")
    assert caught.value.hint == "give memory of a GPU in GiB, from 1e-09 to 1e+15"


def test_a_latency_of_0_and_hosts_without_memory_are_taken() -> None:
    found = cluster_from('like = "h100"\nmachine.latency_us = 0\nmachine.memory_gib = 0', "x")
    assert (found.machine.latency, found.machine.memory) == (0, 0)


@pytest.mark.parametrize("text", ["h100:0", "h100:-1", "h100:", "h100:9999999999999", "h100:x"])
def test_a_number_of_gpus_is_above_0(text: str) -> None:
    with pytest.raises(ShapeError, match="is not a number of GPUs"):
        read_cluster(text)


def test_an_unknown_name_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match=r"no cluster is called 'h1000'[\s\S]*did you mean 'h100'"):
        read_cluster("h1000:8")
    with pytest.raises(ShapeError, match="cannot read"):
        read_cluster(str(tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_text("a =")
    with pytest.raises(ShapeError, match="this is not TOML"):
        read_cluster(str(tmp_path / "bad.toml"))
