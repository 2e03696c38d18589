"""Which ops share a row of a picture."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from draw.samples import braided, plain
from penstock.draw.tracks import stands_alone, strands, tracks

SPANS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), min_size=1, max_size=12)


def columns(spans: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([at for at, _ in spans], np.int64)
    return start, start + np.array([length for _, length in spans], np.int64)


def overlap(start: np.ndarray, end: np.ndarray, one: int, other: int) -> bool:
    return bool(start[one] < end[other] and start[other] < end[one])


@given(SPANS)
def test_nothing_overlaps_on_one_strand(spans: list[tuple[int, int]]) -> None:
    start, end = columns(spans)
    strand = strands(start, end)
    pairs = [(i, j) for i in range(len(spans)) for j in range(i)]
    assert not [(i, j) for i, j in pairs if strand[i] == strand[j] and overlap(start, end, i, j)]


@given(SPANS)
def test_an_op_without_company_is_alone(spans: list[tuple[int, int]]) -> None:
    start, end = columns(spans)
    free = stands_alone(start, end)
    for i in range(len(spans)):
        company = any(overlap(start, end, i, j) for j in range(len(spans)) if j != i)
        assert not (free[i] and company)


def test_a_lane_without_pairs_is_one_track() -> None:
    assert [(t.device, t.stream, t.strands) for t in tracks(plain())] == [
        (device, "compute", 1) for device in range(4)
    ]


def test_a_lane_with_pairs_has_two_strands() -> None:
    found = list(tracks(braided()))
    assert [(t.device, t.strand, t.strands) for t in found] == [
        (0, 0, 2),
        (0, 1, 2),
        (1, 0, 2),
        (1, 1, 2),
    ]
    pairs = {op for pair in braided().schedule.pairs for op in pair}
    table = braided().schedule.table
    for track in found:
        assert [table.op(row) in pairs for row in track.rows] == (~track.alone).tolist()
