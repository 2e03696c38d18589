"""Rates between sizes that were measured, and files that have them."""

from json import dumps
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.collective_times import GroupLinks
from penstock.cluster.measured import RatePoint, RateSurface
from penstock.cluster.profile_file import machine_of, read_machine
from penstock.errors import PenstockError, ShapeError
from profiling.made_up import SENT, profile

POINTS = [
    RatePoint((m, n), (t,), 100.0 * m + n + t)
    for m in (16.0, 256.0)
    for n in (8.0, 128.0)
    for t in (1.0, 4.0, 32.0)
]


def test_a_size_that_was_measured_has_its_own_rate() -> None:
    surface = RateSurface(POINTS)
    found = [surface.at(group, at) for group, at, _ in POINTS]
    assert found == pytest.approx([rate for *_, rate in POINTS], rel=1e-12)


@given(st.floats(1, 1e6), st.floats(1, 1e6), st.floats(1, 1e6))
def test_a_rate_lies_between_those_of_measured_sizes(m: float, n: float, tokens: float) -> None:
    rates = [rate for *_, rate in POINTS]
    found = RateSurface(POINTS).at((m, n), (tokens,))
    assert min(rates) * (1 - 1e-9) <= found <= max(rates) * (1 + 1e-9)


def test_a_surface_needs_points_above_0() -> None:
    for points in ([], [RatePoint((1.0,), (1.0,), 0.0)], [RatePoint((0.0,), (1.0,), 1.0)]):
        with pytest.raises(ShapeError):
            RateSurface(points)


def test_collectives_of_a_profile_replace_formulas() -> None:
    row = {"name": "sum", "ranks": 4, "sent_bytes": 1e6, "bytes_per_second": SENT}
    record = profile(collectives=[row])
    record["machine"] |= {"ranks": 4}
    cluster = machine_of(record, "ours").cluster
    inside = GroupLinks(cluster, 4, 4)
    assert inside.sum_seconds(2e6) == pytest.approx(2e6 / SENT, rel=1e-12)
    assert inside.message_seconds(2e6) != pytest.approx(2e6 / SENT)
    assert GroupLinks(cluster, 8, 4).sum_seconds(2e6) != pytest.approx(2e6 / SENT)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "other"}, "not a profile"),
        ({"version": 99}, "version 99"),
        ({"products": []}, "nothing was measured"),
        ({"products": 3}, "no list 'products'"),
        ({"in_step": {}}, "forward is 'None', not a number"),
        ({"case": {"precision": "int3"}}, "case.precision"),
        ({"between_ops_seconds": float("nan")}, "not a number"),
        ({"activations": {"layer": 0.1}}, "head is 'None', not a number"),
    ],
)
def test_a_file_that_is_no_profile_is_refused(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    path = tmp_path / "p.json"
    path.write_text(dumps(profile(**change)))
    with pytest.raises(PenstockError, match=said):
        read_machine(path)
