"""Percentiles and buckets: exactly what counting gives."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import usual
from penstock.data.stats.lengths import LengthStats


@usual
@given(lengths=st.lists(st.integers(1, 5000), min_size=1, max_size=60))
def test_every_document_is_in_the_bucket_of_its_length(lengths: list[int]) -> None:
    stats = LengthStats(np.array(lengths))
    buckets = stats.histogram
    assert sum(bucket.documents for bucket in buckets) == len(lengths)
    assert sum(bucket.tokens for bucket in buckets) == sum(lengths) == stats.tokens
    for bucket in buckets:
        inside = [length for length in lengths if bucket.low <= length <= bucket.high]
        assert (bucket.documents, bucket.tokens) == (len(inside), sum(inside))
    assert [one.high + 1 for one in buckets[:-1]] == [one.low for one in buckets[1:]]


@usual
@given(lengths=st.lists(st.integers(1, 99), min_size=1, max_size=60))
def test_a_percentile_is_the_least_length_that_covers_its_share(lengths: list[int]) -> None:
    for share, value in LengthStats(np.array(lengths)).percentiles.items():
        covered = sum(length <= value for length in lengths) * 100
        below = sum(length < value for length in lengths) * 100
        assert covered >= share * len(lengths) > below


def test_a_hundred_lengths() -> None:
    stats = LengthStats(np.arange(1, 101))
    assert [*stats.percentiles.values()] == [1, 5, 10, 25, 50, 75, 90, 95, 99, 100]
    assert (stats.documents, stats.mean, stats.longest) == (100, 50.5, 100)
