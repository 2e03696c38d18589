"""Global batches: the next samples, known before they are read, wherever a run begins again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import corpus_of, numbered, usual
from penstock.data import IGNORE, GlobalBatches, Samples, SampleStream
from penstock.data.arrangement import Arrangement
from penstock.data.mixture import Mixture
from penstock.data.samples import Once
from penstock.errors import ShapeError

pytestmark = pytest.mark.torch

LENGTHS = [5, 3, 8, 2, 1, 7, 4, 4, 6, 8, 1, 1]


def stream_of(packing: str) -> SampleStream:
    corpus = corpus_of(numbered(LENGTHS))
    if packing == "mixed":
        halves = [
            Arrangement("single", "refuse", 8).samples(corpus, np.arange(start, 12, 2), 3)
            for start in (0, 1)
        ]
        return Mixture(tuple(halves), (0.7, 0.3), 8, 3)
    return Arrangement(packing, "refuse", 8).samples(corpus, np.arange(12), 3)


packings = st.sampled_from(["cut", "whole", "single", "mixed"])


@usual
@given(packing=packings, sequences=st.integers(1, 9), tokens=st.sampled_from([0, 8, 13, 30]))
def test_batches_follow_each_other_and_hold_what_was_asked_for(
    packing: str, sequences: int, tokens: int
) -> None:
    stream, start = stream_of(packing), 0
    batches = GlobalBatches(stream, sequences, tokens)
    for _ in range(8):
        batch = batches.at(start)
        assert batch.numbers == range(start, batch.stop)
        assert 1 <= len(batch.lengths) <= sequences
        assert not tokens or batch.tokens <= tokens
        if len(batch.lengths) < sequences:  # the next one would be too much
            assert batch.tokens + int(stream.lengths([batch.stop])[0]) > tokens
        start = batch.stop


@usual
@given(packing=packings, tokens=st.sampled_from([0, 16]), stop=st.integers(0, 6))
def test_a_run_that_begins_again_has_the_same_batches(packing: str, tokens: int, stop: int) -> None:
    whole, start = [], 0
    for _ in range(stop + 4):
        batch = GlobalBatches(stream_of(packing), 3, tokens).at(start)
        whole.append(batch)
        start = batch.stop
    again = stream_of(packing)
    done = again.resume(stream_of(packing).state(whole[stop - 1].stop if stop else 0))
    for expected in whole[stop:]:
        batch = GlobalBatches(again, 3, tokens).at(done)
        assert batch == expected
        done = batch.stop


@pytest.mark.parametrize("packing", ["cut", "whole", "single", "mixed"])
def test_documents_are_known_before_they_are_read(packing: str) -> None:
    stream = stream_of(packing)
    for number in range(20):
        row = stream.row(number)
        documents = stream.documents_of(number)
        assert sum(documents) == stream.lengths([number])[0]
        starts = np.cumsum([0, *documents]).tolist()
        assert [*row.documents, 8][: len(starts)] == starts


def test_held_out_documents_are_known_too() -> None:
    once = Once.of(stream_of("single"))
    assert once.documents_of(11) == once.documents_of(99)
    assert once.lengths([99]).tolist() == [sum(once.documents_of(99))]


@pytest.mark.parametrize("replicas", [1, 2])
def test_places_that_a_batch_leaves_are_padding_and_everything_is_taken_once(replicas: int) -> None:
    stream, start = stream_of("single"), 0
    batches, seen = GlobalBatches(stream, 4, 10), list[int]()
    while start < stream.count:
        batch = batches.at(start)
        for replica in range(replicas):
            part = batches.limited.batch_at(start, replica, replicas, 4 // replicas, 1)
            for microbatch, number in zip(part, range(start + replica * (4 // replicas), 99)):
                if number >= batch.stop:
                    assert set(microbatch.labels.flatten().tolist()) == {IGNORE}
                else:
                    size = int(stream.lengths([number])[0])
                    seen += microbatch.tokens[0, :size].tolist()
        start = batch.stop
    epoch = [token for document in numbered(LENGTHS) for token in document]
    assert sorted(seen)[: len(epoch)] == sorted(epoch) or start > stream.count
    assert set(epoch) <= set(seen)


def test_a_batch_without_room_for_a_sequence_is_refused() -> None:
    with pytest.raises(ShapeError, match="4 samples and 7 tokens has no room"):
        GlobalBatches(stream_of("single"), 4, 7)


def test_tokens_that_do_not_fill_a_sequence_are_counted_and_said() -> None:
    corpus = corpus_of(numbered([9, 10]))
    arrange = Arrangement("cut", "refuse", 8)
    assert isinstance(arrange.samples(corpus, np.arange(2), 0), Samples)
    assert arrange.notes == [
        "3 of 19 tokens do not fill a sequence and are left out, others in each epoch"
    ]
