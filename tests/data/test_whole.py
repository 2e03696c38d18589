"""Sequences of whole documents: every token once, or counted where it is lost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import corpus_of, numbered, usual
from penstock.data.arrangement import Arrangement
from penstock.data.batch import IGNORE
from penstock.data.bins import best_fit
from penstock.data.whole_samples import WholeSamples
from penstock.errors import ShapeError

pytestmark = pytest.mark.torch


def samples_of(
    lengths: list[int], packing: str, length: int = 8, longer: str = "refuse"
) -> tuple[WholeSamples, list[str]]:
    corpus = corpus_of(numbered(lengths))
    arrange = Arrangement(packing, longer, length)
    found = arrange.samples(corpus, np.arange(len(corpus.lengths)), 7)
    assert isinstance(found, WholeSamples)
    return found, arrange.notes


def epoch(samples: WholeSamples, number: int = 0) -> list[int]:
    """The tokens of an epoch, without padding."""
    first = number * samples.count
    rows = (samples.unpadded(at) for at in range(first, first + samples.count))
    return [token for row in rows for token in row.tokens.tolist()]


@usual
@given(
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=20),
    packing=st.sampled_from(["whole", "single"]),
)
def test_every_epoch_has_every_token_once_and_documents_are_whole(
    lengths: list[int], packing: str
) -> None:
    samples, _ = samples_of(lengths, packing)
    every = sorted(token for document in numbered(lengths) for token in document)
    assert sorted(epoch(samples)) == sorted(epoch(samples, 3)) == every
    for number in range(samples.count):
        row = samples.row(number)
        (size,) = samples.lengths([number])
        assert len(row.tokens) == len(row.labels) == 8
        assert row.documents[-1] == size or size == 8
        ends = [*row.documents[1:], 8][: len(row.documents)]
        for start, stop in zip(row.documents, ends):
            if start < size:
                document, first = divmod(int(row.tokens[start]), 1000)
                assert (first, stop - start) == (0, lengths[document])
                inside = row.tokens[start + 1 : stop].tolist()
                assert row.labels[start:stop].tolist() == [*inside, IGNORE]
        assert row.labels[size:].tolist() == [IGNORE] * int(8 - size)


def test_single_has_one_document_in_each_sequence() -> None:
    samples, notes = samples_of([5, 3, 6, 2], "single")
    assert sorted(samples.lengths(range(4)).tolist()) == [2, 3, 5, 6]
    assert notes == ["4 documents in 4 sequences of 8 tokens, 50.0% of them padding"]


@pytest.mark.parametrize("policy", ["chunk", "flex"])
def test_padding_that_microbatches_leave_out_is_said_to_be(policy: str) -> None:
    arrange = Arrangement("single", "refuse", 8, policy)
    arrange.samples(corpus_of(numbered([4, 4])), np.arange(2), 3)
    assert arrange.notes[0].endswith("50.0% of them padding, which microbatches leave out")
    assert samples_of([5, 3, 6, 2], "whole")[0].lengths(range(2)).tolist() == [8, 8]


def test_a_long_document_is_refused_with_its_number_unless_something_is_to_be_done() -> None:
    with pytest.raises(ShapeError) as refusal:
        samples_of([5, 20, 9], "whole")
    assert refusal.value.message == (
        "2 of 3 documents have more than 8 tokens; "
        "document 1 of 'x.npy' is the longest with 20 tokens"
    )
    assert "data.longer" in refusal.value.hint


@pytest.mark.parametrize(
    ("longer", "kept", "words"),
    [
        ("drop", [0, 1, 2, 3, 4], "left out, 29 tokens"),
        ("truncate", [*range(5), *range(1000, 1008), *range(2000, 2008)], "truncated, 13 tokens"),
        ("split", [*range(5), *range(1000, 1020), *range(2000, 2009)], "divided into sequences"),
    ],
)
def test_what_is_done_to_a_long_document_is_counted_and_said(
    longer: str, kept: list[int], words: str
) -> None:
    samples, notes = samples_of([5, 20, 9], "single", longer=longer)
    assert sorted(epoch(samples)) == kept
    assert words in notes[0]
    assert "document 1 of 'x.npy' is the longest with 20 tokens" in notes[0]


def test_a_divided_document_goes_on_with_its_label() -> None:
    samples, _ = samples_of([20], "single", longer="split")
    rows = sorted((samples.row(number) for number in range(3)), key=lambda row: row.tokens[0])
    assert [row.labels.tolist() for row in rows[:2]] == [[*range(1, 9)], [*range(9, 17)]]
    assert rows[2].labels.tolist() == [17, 18, 19, *[IGNORE] * 5]


def test_nothing_that_fits_is_refused() -> None:
    with pytest.raises(ShapeError, match="no document has 8 tokens or fewer"):
        samples_of([20, 9], "whole", longer="drop")


def test_other_packings_are_other_data() -> None:
    marks = {samples_of([5, 3, 6, 2], packing)[0].fingerprint for packing in ("whole", "single")}
    assert len(marks) == 2


@usual
@given(sizes=st.lists(st.integers(1, 10), max_size=40))
def test_bins_hold_every_item_once_and_are_few(sizes: list[int]) -> None:
    bins = best_fit(sizes, 10)
    assert sorted(item for items in bins for item in items) == list(range(len(sizes)))
    filled = [sum(sizes[item] for item in items) for items in bins]
    assert all(0 < size <= 10 for size in filled)
    assert sum(size <= 5 for size in filled) <= 1  # two halves would be in one
