"""Bytes, and the tokenizers of Hugging Face models."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import usual
from penstock.data.tokenizer import Bytes, tokenizer
from penstock.errors import RunError, ShapeError

WORDS = {"<s>": 0, "</s>": 1, "<unk>": 2, "to": 3, "be": 4, "or": 5, "not": 9}


def described(**changes: Any) -> dict[str, Any]:
    """A tokenizer of whole words that begins every text with <s>, as its file says it."""
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": WORDS[word], "content": word, "special": True, **special}
            for word in ("<s>", "</s>", "<unk>")
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "<unk>"},
        **changes,
    }


@pytest.fixture
def words(tmp_path: Path) -> Path:
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(described()))
    return path


@usual
@given(text=st.text())
def test_bytes_give_the_text_back(text: str) -> None:
    found = tokenizer("byte").encode(text)
    assert bytes(found.tolist()).decode() == text


def test_bytes_are_all_there_is() -> None:
    made = tokenizer("byte")
    assert (made.name, made.vocabulary, made.fingerprint) == ("byte", 256, Bytes.fingerprint)
    with pytest.raises(
        ShapeError, match=r"data.end_token is '</s>', but the byte tokenizer has no special"
    ):
        tokenizer("byte", "</s>")


def test_a_file_says_what_stands_around_a_text(words: Path) -> None:
    made = tokenizer(str(words))
    assert made.encode("to be or what").tolist() == [0, 3, 4, 5, 2]
    assert [one.tolist() for one in made.encode_all(["not", "be to"])] == [[0, 9], [0, 4, 3]]


def test_the_vocabulary_reaches_to_the_largest_token(words: Path) -> None:
    assert tokenizer(str(words)).vocabulary == 10


def test_an_end_token_stands_after_every_document_but_an_empty_one(words: Path) -> None:
    made = tokenizer(str(words), "</s>")
    assert [one.tolist() for one in made.encode_all(["to be", ""])] == [[0, 3, 4, 1], []]
    with pytest.raises(ShapeError, match=r"data.end_token is '<eos>', which .* does not have"):
        tokenizer(str(words), "<eos>")


def test_a_folder_stands_for_the_tokenizer_in_it(words: Path) -> None:
    assert tokenizer(str(words.parent)).fingerprint == tokenizer(str(words)).fingerprint


def test_truncation_and_padding_of_the_file_are_switched_off(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    cut = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    fill = {
        "strategy": {"Fixed": 8},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 1,
        "pad_type_id": 0,
        "pad_token": "</s>",
    }
    path.write_text(json.dumps(described(truncation=cut, padding=fill)))
    assert tokenizer(str(path)).encode("to be or not to be").tolist() == [0, 3, 4, 5, 9, 3, 4]


def test_the_fingerprint_knows_the_file_and_the_end_token(words: Path) -> None:
    marks = {tokenizer(str(words)).fingerprint, tokenizer(str(words), "</s>").fingerprint}
    words.write_text(json.dumps(described(pre_tokenizer={"type": "WhitespaceSplit"})))
    marks.add(tokenizer(str(words)).fingerprint)
    assert len(marks | {Bytes.fingerprint}) == 4


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff\xfe", b'{"model": 3}', b"[" * 9999])
def test_a_file_that_is_no_tokenizer_is_refused(words: Path, content: bytes) -> None:
    words.write_bytes(content)
    with pytest.raises(ShapeError, match=r"tokenizer\.json' is not a tokenizer: "):
        tokenizer(str(words))


def test_a_text_that_a_tokenizer_has_no_token_for_is_refused(words: Path) -> None:
    model = {"type": "WordLevel", "vocab": WORDS, "unk_token": "<none>"}
    words.write_text(json.dumps(described(model=model)))
    with pytest.raises(ShapeError, match=r"cannot tokenise a text: .*Missing") as refusal:
        tokenizer(str(words)).encode("unheard")
    assert "unknown token" in refusal.value.hint


@pytest.mark.parametrize("name", ["nothing.json", "bytes", "a\0b", "x" * 300])
def test_a_path_without_a_tokenizer_is_refused(name: str) -> None:
    with pytest.raises(ShapeError) as refusal:
        tokenizer(name)
    assert refusal.value.hint == "data.tokenizer is 'byte' or the path of a tokenizer.json"


def test_the_missing_package_is_named(words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(RunError) as refusal:
        tokenizer(str(words))
    assert refusal.value.hint == "pip install 'penstock[hf]'"
