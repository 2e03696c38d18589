"""What a policy makes of documents, compared with what training makes of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import corpus_of, numbered, usual
from penstock.data.arrangement import Arrangement
from penstock.data.stats.policies import BatchRule, PolicyOutcome, all_outcomes
from penstock.data.whole_samples import WholeSamples

sizes = st.lists(st.integers(1, 16), min_size=1, max_size=60)


def outcomes(lengths: list[int], tokens: int = 32) -> dict[str, PolicyOutcome]:
    found = all_outcomes(np.array(lengths), BatchRule(16, tokens, 4))
    return {outcome.name: outcome for outcome in found}


@usual
@given(lengths=sizes)
def test_tokens_and_padding_fill_every_place(lengths: list[int]) -> None:
    for name, outcome in outcomes(lengths).items():
        for units in outcome.made:
            places = units.tokens + units.padding
            assert min(units.tokens.min(), units.padding.min()) >= 0
            if name.startswith("pack"):
                assert set(places.tolist()) == {16}
                assert places.sum() <= 32
            else:
                assert places.max() <= 4
                assert units.padding.sum() == 0
            assert (units.pairs <= places * (places + 1) / 2 + 16 * places).all()


@usual
@given(lengths=sizes)
def test_slices_of_a_batch_have_all_tokens_and_pairs_of_its_documents(lengths: list[int]) -> None:
    """Slices change neither what is computed nor what attends to what."""
    outcome = outcomes(lengths, tokens=1000)["chunk"]
    (units,) = outcome.made
    assert units.tokens.sum() == sum(lengths)
    assert units.pairs.sum() == sum(length * (length + 1) / 2 for length in lengths)


def test_a_worked_example() -> None:
    """Documents of 16, 5, 3, 6 and 2 tokens, sequences of 16, batches of 32, slices of 4."""
    found = outcomes([16, 5, 3, 6, 2])
    cut, whole, single = (found[f"pack, {name}"] for name in ("cut", "whole", "single"))
    assert (cut.units, cut.documents, cut.padding, cut.cut) == (2, 5, 0, 0)
    assert (whole.units, whole.documents, whole.padding) == (2, 5, 0)
    assert (single.batches, single.units, single.padding) == (2, 2, 1 - 30 / 64)
    assert single.made[0].pairs.tolist() == [136, 15 + 66]
    chunk = found["chunk"]
    assert (chunk.units, chunk.largest, chunk.documents) == (4 + 2 + 2 + 2, 4, 5)
    assert outcomes([10, 10, 12])["pack, cut"].cut == 1


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
