"""What a policy makes of documents, compared with what training makes of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import corpus_of, numbered, usual
from penstock.data.arrangement import Arrangement
from penstock.data.stats.policies import (
    BatchRule,
    PolicyOutcome,
    batches_of_documents,
    packed_outcomes,
)
from penstock.data.whole_samples import WholeSamples

sizes = st.lists(st.integers(1, 16), min_size=1, max_size=60)


def outcomes(lengths: list[int], tokens: int = 32) -> dict[str, PolicyOutcome]:
    found = packed_outcomes(np.array(lengths), BatchRule(16, tokens, 4))
    return {outcome.name: outcome for outcome in found}


@usual
@given(lengths=sizes)
def test_tokens_and_padding_fill_every_place(lengths: list[int]) -> None:
    for outcome in outcomes(lengths).values():
        for units in outcome.made:
            places = units.tokens + units.padding
            assert min(units.tokens.min(), units.padding.min()) >= 0
            assert set(places.tolist()) == {16}
            assert places.sum() <= 32
            assert [int(each.sum()) for each in units.documents] == units.tokens.tolist()


@usual
@given(lengths=sizes)
def test_batches_of_documents_have_each_once_and_in_order(lengths: list[int]) -> None:
    found = [each.tolist() for each in batches_of_documents(np.array(lengths), 32)]
    assert all(sum(each) <= 32 for each in found)
    every = [length for each in found for length in each]
    assert every == lengths[: len(every)]
    assert sum(lengths[len(every) :]) < 32


def test_tokens_too_few_for_a_sequence_make_none() -> None:
    assert [*outcomes([3, 11])] == ["pack, whole", "pack, single"]
    assert [*outcomes([3, 13])] == ["pack, cut", "pack, whole", "pack, single"]


def test_a_worked_example() -> None:
    """Documents of 16, 5, 3, 6 and 2 tokens, sequences of 16, batches of 32."""
    found = outcomes([16, 5, 3, 6, 2])
    cut, whole, single = (found[f"pack, {name}"] for name in ("cut", "whole", "single"))
    assert (cut.units, cut.documents, cut.padding, cut.cut) == (2, 5, 0, 0)
    assert (whole.units, whole.documents, whole.padding) == (2, 5, 0)
    assert (single.batches, single.units, single.padding) == (2, 2, 1 - 30 / 64)
    assert [each.tolist() for each in single.made[0].documents] == [[16], [5]]
    across = outcomes([10, 10, 12])["pack, cut"]
    assert across.cut == 1
    assert [each.tolist() for each in across.made[0].documents] == [[10, 6], [4, 12]]


@pytest.mark.torch
@usual
@given(lengths=sizes)
def test_padding_is_that_of_training(lengths: list[int]) -> None:
    corpus = corpus_of(numbered(lengths))
    for packing in ("whole", "single"):
        samples = Arrangement(packing, "refuse", 16).samples(corpus, np.arange(len(lengths)), 0)
        assert isinstance(samples, WholeSamples)
        outcome = outcomes(lengths, tokens=16 * samples.count)[f"pack, {packing}"]
        assert (outcome.batches, outcome.units) == (1, samples.count)
        assert outcome.padding == pytest.approx(samples.padding, abs=1e-12)
