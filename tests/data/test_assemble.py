"""From settings to samples, over real files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import usual
from penstock.data import Data, DataSettings, Samples, assemble, open_data
from penstock.data.assemble import _split
from penstock.data.samples import Once
from penstock.data.sources import size_of, standard_library, up_to
from penstock.data.stream import SampleStream
from penstock.errors import FormatError, PenstockError, ShapeError

pytestmark = pytest.mark.torch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty small texts, the same as lines of JSON and as tokens."""
    texts = [f"text {number} " * 3 for number in range(20)]
    (tmp_path / "text").mkdir()
    for number, text in enumerate(texts):
        (tmp_path / "text" / f"{number:02}.txt").write_text(text)
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "x.jsonl").write_text(lines)
    np.save(tmp_path / "x.npy", np.frombuffer("".join(texts).encode(), dtype=np.uint8))
    starts = np.cumsum([0, *(len(text) for text in texts[:-1])])
    np.save(tmp_path / "x.documents.npy", starts)
    return tmp_path


def opened(folder: Path, source: str, *paths: str, length: int = 16, **fields: Any) -> Data:
    settings = DataSettings(
        source=source, paths=tuple(str(folder / path) for path in paths), **fields
    )
    return open_data(settings, length, 256, 3, folder / "cache")


def laid(stream: SampleStream | None) -> Samples:
    """The samples of a stream whose documents are laid end to end."""
    found = stream.stream if isinstance(stream, Once) else stream
    assert isinstance(found, Samples)
    return found


def rows(samples: SampleStream, count: int) -> list[tuple[Any, ...]]:
    found = [samples.sample(number) for number in range(count)]
    return [(one.tokens.tolist(), one.labels.tolist(), one.documents) for one in found]


def words(stream: SampleStream) -> bytes:
    samples = laid(stream)
    return b"".join(
        bytes(samples.corpus.tokens(int(number), 0, int(samples.corpus.lengths[number])).tolist())
        for number in samples.documents
    )


def test_the_same_documents_give_the_same_samples_from_every_source(folder: Path) -> None:
    text = laid(opened(folder, "text", "text").train)
    assert text.count * 16 + text.dropped == text.tokens
    for source, path in (("jsonl", "x.jsonl"), ("tokens", "x.npy")):
        assert rows(opened(folder, source, path).train, 40) == rows(text, 40)


def test_a_share_of_the_documents_is_held_out_and_not_trained_on(folder: Path) -> None:
    data = opened(folder, "text", "text", held_out=0.2)
    assert data.held_out
    held, train = (set(laid(one).documents.tolist()) for one in (data.held_out, data.train))
    assert len(held) == 4
    assert held | train == set(range(20))
    assert not held & train
    for number in held:
        assert f"text {number} ".encode() in words(data.held_out)


def test_what_is_held_out_does_not_depend_on_the_seed_of_the_run(folder: Path) -> None:
    settings = DataSettings(source="text", paths=(str(folder / "text"),), held_out=0.3)
    one, other = (open_data(settings, 16, 256, seed, folder / "cache") for seed in (1, 2))
    assert one.held_out
    assert other.held_out
    assert rows(one.held_out, 9) == rows(other.held_out, 9)
    assert rows(one.train, 9) != rows(other.train, 9)


def test_other_files_can_be_held_out(folder: Path) -> None:
    (folder / "apart.txt").write_text("something else entirely")
    data = opened(folder, "text", "text", held_out_paths=(str(folder / "apart.txt"),))
    assert data.held_out
    assert words(data.held_out) == b"something else entirely"
    assert len(laid(data.train).documents) == 20
    with pytest.raises(ShapeError, match=r"03\.txt' is both trained on and held out"):
        opened(folder, "text", "text", held_out_paths=(str(folder / "text" / "03.txt"),))


def test_what_is_held_out_does_not_begin_again(folder: Path) -> None:
    for data in (
        opened(folder, "text", "text", held_out=0.2),
        opened(folder, "text", "text/00.txt", held_out_paths=(str(folder / "text" / "03.txt"),)),
    ):
        assert data.held_out
        assert data.held_out.sample(data.held_out.count - 1).valid > 0
        assert data.held_out.sample(data.held_out.count).valid == 0
        assert data.train.sample(data.train.count).valid > 0


def test_nothing_is_held_out_unless_told(folder: Path) -> None:
    assert opened(folder, "text", "text").held_out is None


@usual
@given(documents=st.integers(2, 300), share=st.floats(0.001, 0.999))
def test_a_split_has_every_document_on_one_side_and_some_on_each(
    documents: int, share: float
) -> None:
    train, held = (side.tolist() for side in _split(np.arange(documents), share))
    assert sorted(train + held) == list(range(documents))
    assert train
    assert held
    assert train == sorted(train)
    assert abs(len(held) - share * documents) <= 1


def test_what_is_held_out_never_changes_from_one_release_to_the_next() -> None:
    assert _split(np.arange(20), 0.2)[1].tolist() == [2, 3, 11, 13]


def test_one_document_cannot_be_divided(folder: Path) -> None:
    with pytest.raises(ShapeError, match=r"data.held_out is 0.1, but there is 1 document"):
        opened(folder, "text", "text/00.txt", held_out=0.1)


@pytest.mark.parametrize(
    ("source", "path", "fields", "message"),
    [
        ("text", "text", {"length": 9000}, "training data: a sequence has 9,000 tokens, but the"),
        ("text", "text", {"length": 100, "held_out": 0.05}, "held-out data: a sequence has 100"),
        ("text", "none/*.txt", {}, "no file matches"),
        ("text", "empty.txt", {}, "1 files hold 0 tokens in 0 documents"),
        ("text", "letter.txt", {}, "1 files hold 1 tokens in 1 documents"),
        ("jsonl", "empty.txt", {}, "1 files hold 0 tokens in 0 documents"),
        ("tokens", "empty.txt", {}, "1 files hold 0 tokens in 0 documents"),
        ("jsonl", "text", {}, "no file matches"),
        ("text", "x.npy", {"tokenizer": "absent"}, "cannot read 'absent'"),
    ],
)
def test_data_that_cannot_be_trained_on_are_refused(
    folder: Path, source: str, path: str, fields: dict[str, Any], message: str
) -> None:
    (folder / "empty.txt").touch()
    (folder / "letter.txt").write_text("a")
    with pytest.raises(ShapeError) as refusal:
        opened(folder, source, path, **fields)
    assert message in refusal.value.message
    assert refusal.value.hint


@pytest.mark.parametrize(("source", "path"), [("text", "text"), ("jsonl", "x.jsonl")])
def test_what_a_limit_leaves_out_is_said(folder: Path, source: str, path: str) -> None:
    assert "limit_bytes" not in " ".join(opened(folder, source, path, limit_bytes=1000).notes)
    notes = " ".join(opened(folder, source, path, limit_bytes=100).notes)
    taken, total = (4, 450) if source == "text" else (2, 710)
    assert f"limit_bytes is 100: the first {taken} documents are taken" in notes
    assert f"the rest of {total:,} bytes is left out" in notes


def test_files_and_arrays_that_hold_nothing_are_said(folder: Path) -> None:
    (folder / "empty.jsonl").touch()
    notes = " ".join(opened(folder, "jsonl", "x.jsonl", "empty.jsonl").notes)
    assert "1 of 2 files are empty, first '" in notes
    assert "empty.jsonl'" in notes
    np.save(folder / "empty.npy", np.zeros(9, dtype=np.uint8))
    np.save(folder / "empty.documents.npy", np.array([0, 4, 4, 9, 9]))
    notes = " ".join(opened(folder, "tokens", "x.npy", "empty.npy").notes)
    assert "3 of 25 documents are empty and skipped, first document 1 of '" in notes
    assert "empty.npy'" in notes


@pytest.mark.parametrize(
    ("text", "packing", "message"),
    [
        ("", "whole", "1 files hold 0 tokens in 0 documents"),
        ("a", "whole", "1 files hold 1 tokens in 1 documents"),
        ("ab", "cut", "a sequence has 24 tokens, but the data have only 2 in 1 documents"),
        ("a" * 25, "whole", "no document has 24 tokens or fewer"),
    ],
)
def test_a_source_of_a_mixture_that_gives_nothing_is_refused_by_name(
    folder: Path, text: str, packing: str, message: str
) -> None:
    """Also where others have enough: its share of the samples would teach nothing."""
    (folder / "y.jsonl").write_text(json.dumps({"text": text}))
    fields = {"packing": packing, "longer": "drop" if packing == "whole" else "refuse"}
    with pytest.raises(ShapeError, match=r"y\.jsonl'") as refusal:
        opened(folder, "jsonl", "x.jsonl", "y.jsonl", length=24, weights=(0.5, 0.5), **fields)
    assert message in refusal.value.message


def test_a_bad_line_is_found_through_the_whole_way(folder: Path) -> None:
    with (folder / "x.jsonl").open("a") as file:
        file.write("{bad\n")
    with pytest.raises(FormatError, match=r"line 21, column 2: .*x\.jsonl"):
        opened(folder, "jsonl", "x.jsonl")
    assert not list((folder / "cache").glob("*.[pt]*"))


def test_text_outside_the_vocabulary_is_refused_before_training(folder: Path) -> None:
    settings = DataSettings(source="text", paths=(str(folder / "text"),))
    with pytest.raises(ShapeError, match=r"00\.txt'\) has token 116 at offset 0, but"):
        open_data(settings, 16, 100, 0, folder / "cache")


def test_arrays_too_large_to_look_at_are_refused_when_they_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(folder / "big.npy", np.array([1] * 31 + [999], dtype=np.uint16))
    with pytest.raises(ShapeError, match=r"of '.*big.npy' has token 999 at offset 31"):
        opened(folder, "tokens", "big.npy")
    monkeypatch.setattr(assemble, "LOOK_AT_ALL_UP_TO", 31)
    train = opened(folder, "tokens", "big.npy").train
    with pytest.raises(ShapeError, match=r"of '.*big.npy' has token 999 at offset 31"):
        rows(train, 2)


def test_the_standard_library_up_to_a_limit(tmp_path: Path) -> None:
    data = open_data(DataSettings(limit_bytes=200_000, held_out=0.1), 512, 256, 0, tmp_path)
    assert data.held_out
    taken = up_to(standard_library(), 200_000)
    assert (
        laid(data.train).tokens + laid(data.held_out).tokens == sum(map(size_of, taken)) <= 200_000
    )
    assert b"import" in words(data.train)


def test_a_tokenizer_file_is_used(folder: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({"<unk>": 0, "text": 1, "<end>": 2}, unk_token="<unk>")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))
    tokenizer = str(folder / "tokenizer.json")
    data = opened(folder, "text", "text", tokenizer=tokenizer, end_token="<end>", length=7)
    assert [one[0] for one in rows(data.train, 20)] == [[[1, 0, 1, 0, 1, 0, 2]]] * 20
    assert laid(data.train).dropped == 0


absent = st.text(max_size=8).map(lambda name: f"absent-{name}")
nowhere = st.fixed_dictionaries(
    {"limit_bytes": st.integers(1, 9)},  # the first document of the library is larger
    optional={
        "source": st.sampled_from(["text", "jsonl", "tokens", "stdlib", "x"]),
        "paths": st.lists(absent, max_size=2).map(tuple),
        "field": st.text(max_size=5),
        "tokenizer": absent,
        "dtype": st.sampled_from(["uint16", "float"]),
        "held_out": st.floats(),
    },
)


@usual
@given(fields=nowhere)
def test_settings_that_lead_nowhere_end_in_our_own_error(
    tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any]
) -> None:
    cache = tmp_path_factory.getbasetemp() / "none"
    with pytest.raises(PenstockError) as refusal:
        open_data(DataSettings(**fields), 16, 256, 0, cache)
    assert refusal.value.hint
