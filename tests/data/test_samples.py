"""Samples: a function of seed and number, dealt out the same whatever the layout."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import VOCABULARY, array_of, corpus_of, lengths, numbered, usual
from penstock.data.batch import IGNORE, Microbatch
from penstock.data.corpus import corpus
from penstock.data.samples import Once, Samples
from penstock.errors import ShapeError

pytestmark = pytest.mark.torch


def samples_of(lengths: list[int], length: int = 3, seed: int = 7) -> Samples:
    corpus = corpus_of(numbered(lengths))
    return Samples(corpus, np.arange(len(corpus.lengths)), length, seed)


def contents(batch: tuple[Microbatch, ...]) -> list[tuple[Any, ...]]:
    """Every row of every microbatch: tokens, labels, documents."""
    return [
        (mb.tokens[row].tolist(), mb.labels[row].tolist(), mb.documents[row])
        for mb in batch
        for row in range(mb.rows)
    ]


@usual
@given(lengths=lengths.filter(lambda all: sum(all) >= 3), epoch=st.integers(0, 3))
def test_an_epoch_has_every_token_once_but_for_the_tail_it_counts(
    lengths: list[int], epoch: int
) -> None:
    samples = samples_of(lengths)
    first = epoch * samples.count
    seen = [
        token
        for number in range(first, first + samples.count)
        for token in samples.sample(number).tokens.flatten().tolist()
    ]
    every = {token for document in numbered(lengths) for token in document}
    assert len(seen) == len(set(seen)) == samples.tokens - samples.dropped
    assert set(seen) <= every
    assert samples.dropped < samples.length
    assert samples.tokens == len(every)


@usual
@given(
    start=st.integers(0, 100),
    replicas=st.integers(1, 4),
    microbatches=st.integers(1, 3),
    rows=st.integers(1, 3),
)
def test_the_samples_of_a_step_are_the_next_ones_whatever_the_layout(
    start: int, replicas: int, microbatches: int, rows: int
) -> None:
    samples = samples_of([5, 9, 2, 7, 30])
    dealt = [
        row
        for replica in range(replicas)
        for row in contents(samples.batch_at(start, replica, replicas, microbatches, rows))
    ]
    size = replicas * microbatches * rows
    one_by_one = tuple(samples.sample(start + number) for number in range(size))
    assert dealt == contents(one_by_one)


def test_a_step_begins_where_equal_steps_before_it_end() -> None:
    samples = samples_of([5, 9, 2, 7, 30])
    steps = [
        row
        for step in range(3)
        for replica in (0, 1)
        for row in contents(samples.batch(step, replica, 2, 2, 1))
    ]
    assert steps == contents(tuple(samples.sample(number) for number in range(12)))


def test_a_microbatch_has_its_rows_side_by_side() -> None:
    mb = samples_of([40]).batch(0, 0, 1, 1, 4)[0]
    assert (mb.rows, mb.length) == (4, 3)
    assert str(mb.tokens.dtype) == str(mb.labels.dtype) == "torch.int64"


@usual
@given(stop=st.integers(0, 8), steps=st.integers(1, 8))
def test_a_run_that_resumes_with_another_layout_sees_the_same_samples(
    stop: int, steps: int
) -> None:
    samples = samples_of([5, 9, 2, 7, 30])
    whole = [contents(samples.batch(step, 0, 1, 4, 1)) for step in range(stop + steps)]
    again = samples_of([5, 9, 2, 7, 30])
    done = again.resume(samples.state(stop * 4))
    rest = []
    for step in range(steps):
        start = done + 4 * step
        halves = [contents(again.batch_at(start, replica, 2, 1, 2)) for replica in (0, 1)]
        rest.append(halves[0] + halves[1])
    assert whole[stop:] == rest


def test_every_epoch_and_every_seed_has_another_order() -> None:
    samples = samples_of([30, 30, 30])
    per_epoch = samples.count

    def epoch(of: Samples, number: int) -> list[Any]:
        return contents(of.batch_at(number * per_epoch, 0, 1, per_epoch, 1))

    assert epoch(samples, 0) != epoch(samples, 1)
    assert epoch(samples, 0) != epoch(samples_of([30, 30, 30], seed=8), 0)
    assert epoch(samples, 0) == epoch(samples_of([30, 30, 30]), 0)


def test_one_long_document_is_shuffled_too_and_anew_in_every_epoch() -> None:
    samples = samples_of([90])
    firsts = [int(samples.sample(number).tokens[0, 0]) for number in range(60)]
    assert sorted(firsts[:30]) == sorted(firsts[30:]) == list(range(0, 90, 3))
    assert firsts[:30] != sorted(firsts[:30])
    assert firsts[:30] != firsts[30:]


def test_documents_meet_other_documents_in_every_epoch() -> None:
    samples = samples_of([2] * 30)  # sequences of 3 cut every other document

    def cuts(epoch: int) -> set[tuple[int, ...]]:
        first = epoch * samples.count
        numbers = range(first, first + samples.count)
        return {tuple(samples.sample(number).tokens[0].tolist()) for number in numbers}

    assert len(cuts(0)) == len(cuts(1)) == 20
    assert cuts(0) != cuts(1)


def test_going_back_and_forth_between_epochs_changes_nothing() -> None:
    samples = samples_of([9, 9])
    there = contents((samples.sample(0), samples.sample(50), samples.sample(0)))
    assert there[0] == there[2] == contents((samples_of([9, 9]).sample(0),))[0]


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (samples_of([5, 9, 3]), "fingerprint"),
        (samples_of([5, 9], length=4), "length"),
        (samples_of([5, 9], seed=8), "seed"),
    ],
)
def test_other_samples_under_a_resumed_run_are_refused_with_both_sides_named(
    other: Samples, name: str
) -> None:
    stored = samples_of([5, 9]).state(12)
    if name == "fingerprint":
        stored["fingerprint"] = "5" * 32
    with pytest.raises(ShapeError) as refusal:
        other.resume(stored)
    assert f"{name} {stored[name]}, but now it is {getattr(other, name)}" in str(refusal.value)


def test_fewer_documents_of_the_same_corpus_are_other_data() -> None:
    corpus = corpus_of(numbered([5, 9, 4]))
    marks = {Samples(corpus, np.array(kept), 3, 0).fingerprint for kept in ([0, 1], [0, 2], [1, 2])}
    assert len(marks) == 3


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"samples": "3"},
        {**samples_of([9]).state(0), "samples": None},
        {**samples_of([9]).state(0), "samples": -4},
        {**samples_of([9]).state(0), "seed": 1.5},
    ],
)
def test_a_stored_position_that_is_none_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(ShapeError, match="the stored data position has"):
        samples_of([9]).resume(stored)


def test_a_sequence_longer_than_all_data_is_refused_with_the_numbers() -> None:
    with pytest.raises(ShapeError, match="has 1,000 tokens, but the data have only 14 in 2 doc"):
        samples_of([5, 9], length=1000)


@pytest.mark.parametrize(("length", "seed"), [(0, 1), (-3, 1), (3, -1)])
def test_impossible_numbers_are_refused(length: int, seed: int) -> None:
    with pytest.raises(ShapeError, match=f"{length} tokens with seed {seed}"):
        samples_of([50], length=length, seed=seed)


@pytest.mark.parametrize(
    "request_", [(-1, 0, 1, 1, 1), (0, 2, 2, 1, 1), (0, -1, 2, 1, 1), (0, 0, 1, 0, 1), (0,) * 5]
)
def test_an_impossible_layout_is_refused(request_: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError):
        samples_of([50]).batch_at(*request_)


def test_a_sample_before_the_first_and_a_microbatch_without_rows_are_refused() -> None:
    with pytest.raises(ShapeError, match="no sample -1"):
        samples_of([50]).sample(-1)
    with pytest.raises(ShapeError, match="no rows"):
        samples_of([50]).rows([])


def test_held_out_samples_count_once_however_many_are_asked_for() -> None:
    """Whole batches are filled up with rows of which no label counts."""
    corpus = corpus_of(numbered([9, 8, 5]))
    endless = Samples(corpus, np.arange(3), 3, 7)
    once = Once.of(endless)
    assert once.count == 7
    first, second = once.batch(0, 0, 1, 2, 5), endless.batch(0, 0, 1, 2, 5)
    assert contents(first)[:7] == contents(second)[:7]
    for tokens, labels, documents in contents(first)[7:] + contents(once.batch(9, 0, 1, 2, 5)):
        assert (tokens, documents) == (contents(first)[6][0], contents(first)[6][2])
        assert set(labels) == {IGNORE}


@usual
@given(data=st.data(), lengths=lengths.filter(lambda all: sum(all) >= 3))
def test_a_label_is_the_next_token_of_its_document_if_that_counts(
    data: st.DataObject, lengths: list[int]
) -> None:
    documents = numbered(lengths)
    marks = data.draw(st.lists(st.booleans(), min_size=sum(lengths), max_size=sum(lengths)))
    runs = np.flatnonzero(np.diff(marks, prepend=False, append=False))
    masked = corpus([array_of(documents)._replace(runs=runs)], VOCABULARY)
    counts = dict(zip((token for document in documents for token in document), marks))
    samples = Samples(masked, np.arange(len(masked.lengths)), 3, 7)
    for number in range(samples.count):
        row = samples.row(number)
        for token, label in zip(row.tokens.tolist(), row.labels.tolist()):
            assert label == (token + 1 if counts.get(token + 1) else IGNORE)
