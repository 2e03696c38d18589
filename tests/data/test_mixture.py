"""Several sources in one stream: the shares that were asked for, found again at any number."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import corpus_of, numbered, usual
from penstock.data import DataSettings, Samples, open_data
from penstock.data.mixture import MIXTURE_BLOCK, Mixture, quotas
from penstock.errors import ShapeError

pytestmark = pytest.mark.torch


def mixture_of(*weights: float, seed: int = 5) -> Mixture:
    corpus = corpus_of(numbered([30] * len(weights)))
    streams = [Samples(corpus, np.array([number]), 3, 7) for number in range(len(weights))]
    return Mixture(tuple(streams), weights, 3, seed)


@usual
@given(weights=st.lists(st.floats(0.01, 1), min_size=1, max_size=5), upto=st.integers(1, 30_000))
def test_every_prefix_has_nearly_the_shares_that_were_asked_for(
    weights: list[float], upto: int
) -> None:
    mixture, counts = mixture_of(*weights), [0] * len(weights)
    for number in range(min(upto, 600)):
        source, inside = mixture.source_of(number)
        assert inside == counts[source]
        counts[source] += 1
    for count, quota in zip(counts, quotas(weights)):
        assert abs(count - sum(counts) * quota / MIXTURE_BLOCK) <= len(weights)
    assert sum(quotas(weights)) == MIXTURE_BLOCK


def test_a_source_goes_on_where_the_block_before_left_it() -> None:
    mixture = mixture_of(0.75, 0.25)
    seen = [mixture.source_of(number) for number in range(2 * MIXTURE_BLOCK)]
    for source, quota in enumerate((7500, 2500)):
        assert [inside for one, inside in seen if one == source] == list(range(2 * quota))


def test_samples_are_those_of_their_source() -> None:
    mixture = mixture_of(0.5, 0.5)
    for number in (0, 1, 7, 12_345):
        source, inside = mixture.source_of(number)
        row, expected = mixture.row(number), mixture.streams[source].row(inside)
        assert row.tokens.tolist() == expected.tokens.tolist()
        assert mixture.lengths([number]).tolist() == [3]


def test_other_weights_and_seeds_are_other_streams() -> None:
    one, other = mixture_of(0.5, 0.5), mixture_of(0.5, 0.5, seed=6)
    first = [one.source_of(number) for number in range(50)]
    assert first != [other.source_of(number) for number in range(50)]
    assert first == [mixture_of(0.5, 0.5).source_of(number) for number in range(50)]
    assert one.fingerprint != mixture_of(0.6, 0.4).fingerprint
    with pytest.raises(ShapeError, match=f"seed {one.seed}, but now it is {other.seed}"):
        other.resume(one.state(3))


def test_a_weight_that_gives_nothing_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"has 1e-09 for source 1, which is less than one"):
        mixture_of(1.0, 1e-9)


def test_every_note_names_the_source_that_it_is_of(tmp_path: Path) -> None:
    """Also where two sources have the same to say, and of what is held out."""
    for name in "ab":
        texts = ["x" * 3, "", *["y" * size for size in (4, 5, 6, 7, 30)]]
        lines = [json.dumps({"text": text}) for text in texts]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    paths = tuple(str(tmp_path / f"{name}.jsonl") for name in "ab")
    given = DataSettings(
        source="jsonl", paths=paths, weights=(3, 1), packing="whole", longer="drop", held_out=0.2
    )
    notes = open_data(given, 8, 256, 0, tmp_path / "cache").notes
    for path in paths:
        mine = [note for note in notes if note.startswith(f"{path!r}: ")]
        said = " ".join(mine)
        assert "1 of 7 documents are empty and skipped" in said
        assert "documents have more than 8 tokens and are left out" in said
        assert "of them padding" in said
    held = [note for note in notes if note.startswith("held-out data: ")]
    assert "of them padding" in held[-1]
    assert all(note.startswith((*map(repr, paths), "held-out data: ")) for note in notes)
    assert len(notes) == len({*notes})


def test_entries_of_the_paths_are_mixed_by_their_weights(tmp_path: Path) -> None:
    for name, letter in (("a", "a"), ("b", "b")):
        lines = [json.dumps({"text": letter * 16}) for _ in range(10)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    paths = tuple(str(tmp_path / f"{name}.jsonl") for name in "ab")
    settings = DataSettings(source="jsonl", paths=paths, weights=(3, 1), held_out=0.2)
    data = open_data(settings, 8, 256, 0, tmp_path / "cache")
    letters = [chr(int(data.train.row(number).tokens[0])) for number in range(400)]
    assert abs(letters.count("a") - 300) <= 2
    assert data.held_out
    assert data.held_out.count == 2 * 2 * 2  # two documents of each source, of two sequences
    alone = open_data(DataSettings(source="jsonl", paths=paths[:1]), 8, 256, 0, tmp_path / "cache")
    assert len([*(tmp_path / "cache").glob("*.tokens")]) == 2  # each source has its own
    assert alone.train.count == 20
