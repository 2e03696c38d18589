"""Tokenised text on disk: made once, whole or not there, made again when it is damaged."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import thorough, usual
from penstock.data.cache import CacheFacts, Writer, read_cache
from penstock.data.corpus import Array, corpus
from penstock.data.sources import TextFiles
from penstock.data.tokenise import tokenise_source
from penstock.data.tokenizer import Bytes, Tokens
from penstock.errors import RunError

KEY = "k" * 32


def write(path: Path, documents: list[list[int]], dtype: str = "<u2") -> bytes:
    """A cache of these documents, and its bytes."""
    offsets = [0, *np.cumsum([len(document) for document in documents])]
    with path.open("wb") as file:
        writer = Writer(file, dtype)
        for document in documents:
            writer.add(np.array(document, dtype=np.int64))
        facts = CacheFacts(KEY, dtype, writer.tokens, len(documents), 0, 0, 0)
        writer.finish(np.array(offsets, dtype=np.int64), facts)
    return path.read_bytes()


def text_files(folder: Path, *texts: str) -> TextFiles:
    paths = [folder / f"{number}.txt" for number in range(len(texts))]
    for path, text in zip(paths, texts):
        path.write_text(text)
    return TextFiles(paths)


class Counting(Bytes):
    """Bytes, and how often they were made."""

    def __init__(self) -> None:
        self.calls = 0

    def encode(self, text: str) -> Tokens:
        self.calls += 1
        return super().encode(text)


@usual
@given(
    documents=st.lists(st.lists(st.integers(0, 255), max_size=5), max_size=5),
    dtype=st.sampled_from(["<u1", "<u2", "<u4"]),
)
def test_what_was_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], dtype: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "back.tokens"
    write(path, documents, dtype)
    found = read_cache(path, KEY)
    assert found
    pieces = zip(found.offsets, found.offsets[1:])
    assert [found.tokens[start:end].tolist() for start, end in pieces] == documents
    assert found.tokens.dtype == np.dtype(dtype)


def test_every_changed_byte_and_every_cut_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.tokens"
    whole = write(path, [[1, 2, 3], [], [4, 5]])
    assert read_cache(path, KEY)
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert read_cache(path, KEY) is None, f"byte {at} of {len(whole)}"
        path.write_bytes(whole[:at])
        assert read_cache(path, KEY) is None, f"cut at {at} of {len(whole)}"


@thorough
@given(content=st.binary(max_size=120), ending=st.sampled_from([b"", b"penstok2"]))
def test_any_bytes_are_no_cache(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, ending: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.tokens"
    path.write_bytes(content + ending)
    assert read_cache(path, KEY) is None


def test_the_cache_of_other_text_and_a_missing_one_are_none(tmp_path: Path) -> None:
    write(tmp_path / "x.tokens", [[1]])
    assert read_cache(tmp_path / "x.tokens", "other") is None
    assert read_cache(tmp_path / "y.tokens", KEY) is None
    assert read_cache(tmp_path, KEY) is None


def test_text_is_tokenised_once_and_mapped(tmp_path: Path) -> None:
    source, made = text_files(tmp_path, "one", "", "two\u00e9"), Counting()
    (first,), notes = tokenise_source(source, made, tmp_path / "cache", None)
    (again,), same_notes = tokenise_source(source, made, tmp_path / "cache", None)
    assert made.calls == 3
    assert isinstance(again.tokens, np.memmap)
    assert bytes(again.tokens) == "onetwo\u00e9".encode()
    assert again.tokens.dtype == np.uint8
    assert first.offsets.tolist() == again.offsets.tolist() == [0, 3, 3, 8]
    assert first.fingerprint == again.fingerprint
    empty = f"1 of 3 documents are empty and skipped, first {str(tmp_path / '1.txt')!r}"
    assert notes == same_notes == (empty,)


def test_replaced_characters_are_told_from_the_cache_too(tmp_path: Path) -> None:
    source = text_files(tmp_path, "good", "x" * 50, "x" * 50)
    for path in source.files[1:]:
        path.write_bytes(b"\xff" + b"x" * 50)
    said = "2 characters in 2 of 3 documents were not UTF-8 and are replaced, first "
    for _ in range(2):
        (_,), notes = tokenise_source(source, Bytes(), tmp_path / "cache", None)
        assert notes == (said + repr(str(source.files[1])),)


@pytest.mark.parametrize(
    "damage", [lambda whole: whole[:-20], lambda whole: b"", lambda whole: b"x" + whole[1:]]
)
def test_a_damaged_cache_is_made_again(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    source, made = text_files(tmp_path, "text"), Counting()
    tokenise_source(source, made, tmp_path / "cache", None)
    (path,) = (tmp_path / "cache").glob("*.tokens")
    path.write_bytes(damage(path.read_bytes()))
    (found,), _ = tokenise_source(source, made, tmp_path / "cache", None)
    assert (made.calls, bytes(found.tokens)) == (2, b"text")


def test_changed_text_is_tokenised_anew(tmp_path: Path) -> None:
    (first,), _ = tokenise_source(text_files(tmp_path, "text"), Bytes(), tmp_path / "cache", None)
    (second,), _ = tokenise_source(text_files(tmp_path, "tent"), Bytes(), tmp_path / "cache", None)
    assert (bytes(first.tokens), bytes(second.tokens)) == (b"text", b"tent")
    assert first.fingerprint != second.fingerprint


def test_what_a_killed_process_left_is_written_over(tmp_path: Path) -> None:
    source = text_files(tmp_path, "text")
    (found,), _ = tokenise_source(source, Bytes(), tmp_path / "cache", None)
    (path,) = (tmp_path / "cache").glob("*.tokens")
    path.rename(path.with_suffix(".part"))
    (again,), _ = tokenise_source(source, Bytes(), tmp_path / "cache", None)
    assert bytes(again.tokens) == bytes(found.tokens) == b"text"
    assert not list((tmp_path / "cache").glob("*.part"))


def test_progress_is_told_up_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.data.encode.BATCH", 4)
    told: list[tuple[int, int]] = []
    source = text_files(tmp_path, "one", "two", "three", "4")
    tokenise_source(
        source, Bytes(), tmp_path / "cache", lambda done, size: told.append((done, size))
    )
    assert told == [(6, 12), (11, 12), (12, 12)]


def test_text_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    source = text_files(tmp_path, "one", "two")

    def change(done: int, size: int) -> None:
        source.files[0].write_text("1")

    with pytest.raises(RunError, match="the text has changed while it was tokenised"):
        tokenise_source(source, Bytes(), tmp_path / "cache", change)
    assert not list((tmp_path / "cache").glob("*.tokens"))
    assert not list((tmp_path / "cache").glob("*.part"))


def failing(number: int) -> Callable[..., Any]:
    def fail(*arguments: Any, **named: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("call", ["os.fsync", "os.replace", "os.open"])
def test_a_full_disk_is_a_clear_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    source = text_files(tmp_path, "text")
    monkeypatch.setattr(call, failing(errno.ENOSPC))
    with pytest.raises(RunError, match=r"cannot be kept in .*cache': No space left on device"):
        tokenise_source(source, Bytes(), tmp_path / "cache", None)
    assert not list((tmp_path / "cache").glob("*.[pt]*"))


def test_a_cache_folder_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(RunError, match="cannot be kept in"):
        tokenise_source(text_files(tmp_path, "text"), Bytes(), tmp_path / "cache", None)


def test_a_disk_that_does_not_keep_what_it_is_given_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.data.tokenise.read_cache", lambda path, key: None)
    with pytest.raises(RunError, match="does not hold what was just written to it"):
        tokenise_source(text_files(tmp_path, "text"), Bytes(), tmp_path / "cache", None)


@usual
@given(
    marks=st.lists(st.none() | st.lists(st.booleans(), max_size=6), max_size=6),
)
def test_which_tokens_count_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, marks: list[list[bool] | None]
) -> None:
    path = tmp_path_factory.getbasetemp() / "marks.tokens"
    documents = [np.arange(3 if mark is None else len(mark)) for mark in marks]
    offsets = np.cumsum([0, *map(len, documents)])
    with path.open("wb") as file:
        writer = Writer(file, "<u1")
        for tokens, mark in zip(documents, marks):
            writer.add(tokens, None if mark is None else np.array(mark, dtype=np.bool_))
        facts = CacheFacts(KEY, "<u1", writer.tokens, len(marks), 0, 0, 0, runs=writer.runs)
        writer.finish(offsets, facts)
    found = read_cache(path, KEY)
    assert found
    expected = [True if mark is None else mark for mark in marks]
    everywhere = [all(np.atleast_1d(mark)) for mark in expected]
    assert (found.runs is None) == all(everywhere)
    whole = corpus([Array("x", found.tokens, found.offsets, "x", found.runs)], 256)
    full = [mark for tokens, mark in zip(documents, expected) if len(tokens)]
    for number, mark in enumerate(full):
        counted = whole.counted(number, 0, int(whole.lengths[number]))
        assert counted is None or counted.tolist() == np.broadcast_to(mark, len(counted)).tolist()


def test_work_that_is_interrupted_goes_on_with_the_piece_it_was_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.data.encode.BATCH", 4)
    monkeypatch.setattr("penstock.data.tokenise.PIECE_BYTES", 8)
    texts = [letter * 5 for letter in "abcdefg"]
    source, made = text_files(tmp_path, *texts), Counting()

    def interrupt(done: int, size: int) -> None:
        if done == 25:  # the third piece has its first document
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenise_source(source, made, tmp_path / "cache", interrupt)
    assert made.calls == 5
    assert len([*(tmp_path / "cache").glob("*.tokens")]) == 2
    told: list[int] = []
    arrays, _ = tokenise_source(source, made, tmp_path / "cache", lambda done, _: told.append(done))
    assert made.calls == 5 + 3
    assert told == [25, 30, 35]
    assert [bytes(array.tokens).decode() for array in arrays] == [
        "a" * 5 + "b" * 5,
        "c" * 5 + "d" * 5,
        "e" * 5 + "f" * 5,
        "g" * 5,
    ]
    found = corpus(arrays, 256)
    assert found.lengths.tolist() == [5] * 7
    assert found.place(6) == f"document 6 of the text ({str(tmp_path / '6.txt')!r})"


def test_a_damaged_piece_is_made_again_with_those_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.data.encode.BATCH", 1)
    monkeypatch.setattr("penstock.data.tokenise.PIECE_BYTES", 1)
    source, made = text_files(tmp_path, "a", "b", "c"), Counting()
    tokenise_source(source, made, tmp_path / "cache", None)
    (path,) = (tmp_path / "cache").glob("*.1.tokens")
    path.write_bytes(b"x")
    again, _ = tokenise_source(source, made, tmp_path / "cache", None)
    assert b"".join(bytes(array.tokens) for array in again) == b"abc"
    assert made.calls == 3 + 2


def test_text_that_changes_between_two_pieces_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.data.encode.BATCH", 1)
    monkeypatch.setattr("penstock.data.tokenise.PIECE_BYTES", 1)
    source = text_files(tmp_path, "a", "b", "c")

    def change(done: int, size: int) -> None:
        if done == 2:
            source.files[2].write_text("changed")

    with pytest.raises(RunError, match="the text has changed while it was tokenised"):
        tokenise_source(source, Bytes(), tmp_path / "cache", change)
    assert not list((tmp_path / "cache").glob("*.tokens"))
