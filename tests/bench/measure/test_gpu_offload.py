"""Steps with offload on a GPU, tried on the host with a small model."""

from fractions import Fraction
from json import dumps

import pytest
import torch

from penstock.arch.config import ModelConfig
from penstock.bench.gpu import GPU_PARTS, _offload_case
from penstock.bench.gpu_tables import gpu_tables
from penstock.bench.measure import gpu_offload
from penstock.bench.measure.gpu_offload import (
    Bandwidth,
    OffloadCase,
    bandwidth,
    hidden_shares,
    long_row,
    offload_row,
)
from penstock.bench.run import read_bench_settings
from penstock.core.ops import Op

pytestmark = pytest.mark.torch

HOST = torch.device("cpu")
MODEL = ModelConfig(2, 32, 48, 4, 2, 8, 40)
CASE = OffloadCase("sppo", "small", MODEL, 256, 4, "float32")


@pytest.mark.long
def test_a_step_with_offload_stands_beside_one_without() -> None:
    row = offload_row(CASE, HOST, 2, 1, 1 << 22)
    assert row["ratio"] == row["seconds"] / row["seconds_without"]
    assert row["predicted_bytes"] <= row["predicted_bytes_without"]
    assert row["host_late"] == 0
    assert len(row["shares"]) == 4
    dumps(row)
    (head, cells), = gpu_tables({"offload": [{**row, "wanted": 1.03}]})  # fmt: skip
    assert {len(each) for each in cells} == {len(head)}


def test_a_way_to_the_host_has_two_directions() -> None:
    found = bandwidth(HOST, 1 << 22, 2)
    assert found.out > 0
    assert found.back > 0


def test_of_each_slice_as_much_is_moved_as_hides() -> None:
    sizes = CASE.slice_bytes()
    ways = Bandwidth(1e3 / 0.9, 1e9)
    forwards = {Op("F", 0, 0, s + 1): sizes[s] / 2e3 for s in range(3)}
    forwards[Op("F", 0, 0, 3)] = 1e9
    backwards = {Op("B", 0, 0, s): 1e9 for s in range(4)}
    half = Fraction(31, 64)  # what is half in numbers with a point is rounded down
    shares = hidden_shares(CASE, forwards | backwards, ways)
    assert shares[0] in (half, Fraction(1, 2))
    assert shares[2:] == (1, 0)


@pytest.mark.parametrize(("room", "kept"), [(0, 1), (10**9, 4)])
def test_a_long_sequence_waits_on_the_host_as_far_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch, room: int, kept: int
) -> None:
    monkeypatch.setattr(gpu_offload, "_host_limit", lambda share: room)
    row = long_row(CASE, HOST, 1, 0.6)
    assert (row["offloaded_slices"], row["recomputed_slices"]) == (kept - 1, 4 - kept)
    assert row["host_late"] == 0
    assert row["losses"][0] == pytest.approx(3.7, rel=0.1)
    dumps(row)
    (head, cells), = gpu_tables({"offload-long": [row]})  # fmt: skip
    assert {len(each) for each in cells} == {len(head)}


def test_the_settings_of_both_parts_make_cases() -> None:
    settings = read_bench_settings()["gpu"]
    assert {"offload", "offload-long"} <= GPU_PARTS.keys()
    for own, tokens in (
        (settings["offload"], settings["offload"]["tokens"][0]),
        (settings["offload_long"], settings["offload_long"]["tokens"]),
    ):
        case = _offload_case(settings, own, tokens)
        assert sum(case.lengths) == tokens
        assert len(case.slice_bytes()) == case.slices
