"""Records: told by their fields, or refused with what is wrong."""

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import outcome, thorough
from data.records.conversations import CHATML, CHATS
from loops import each
from penstock.data.records.chat import ChatTemplate
from penstock.data.records.reader import RecordReader
from penstock.data.records.refusal import RecordError
from penstock.data.sources import SourceText, SourceTokens
from penstock.errors import PenstockError

TODAY = date(2024, 7, 26)
TEMPLATE = ChatTemplate("chatml", CHATML, {}, TODAY)
READER = RecordReader(template=TEMPLATE)


def learned(record: dict[str, Any], reader: RecordReader = READER) -> list[str]:
    """The parts of a record that count."""
    found = reader.read(record, 9)
    assert isinstance(found, SourceText)
    spans = found.counted if found.counted is not None else [(0, len(found.text))]
    return [found.text[start:stop] for start, stop in spans]


def test_each_kind_of_record_is_told_by_its_fields() -> None:
    assert learned({"text": "all", "id": 3}) == ["all"]
    assert learned({"prompt": "a", "completion": "b"}) == ["b"]
    assert learned({"messages": CHATS[0]}) == ["that is the question<|im_end|>\n"]
    segments = [{"text": "no", "label": False}, {"text": "yes", "label": True}]
    assert learned({"segments": segments}) == ["yes"]
    ready = READER.read({"input_ids": [1, 2], "loss_mask": [0, 1]}, 9)
    assert isinstance(ready, SourceTokens)
    assert ready.tokens.tolist() == [1, 2]
    assert ready.counted is not None
    assert ready.counted.tolist() == [False, True]


def test_every_turn_of_the_assistant_counts_unless_its_weight_is_0() -> None:
    turns = ["caf\u00e9<|im_end|>\n", "\U0001f375  \n\n twice<|im_end|>\n"]
    assert learned({"messages": CHATS[1]}) == turns
    silent = [{**CHATS[1][2], "weight": 0}]
    assert learned({"messages": [*CHATS[1][:2], *silent, *CHATS[1][3:]]}) == turns[1:]
    assert learned({"messages": CHATS[2]}) == []


def test_a_row_of_a_table_has_empty_fields_of_other_kinds() -> None:
    assert learned({"text": None, "messages": None, "prompt": "a", "completion": "b"}) == ["b"]


@each(
    ("record", "what"),
    [
        ([], "is not an object"),
        ({"txt": "a"}, "has no field 'text'"),
        ({"text": 3}, "has a number in 'text'"),
        ({"text": "a", "messages": CHATS[0]}, "may be read as text or as chat"),
        ({"messages": []}, "has no list of messages"),
        ({"messages": [{"content": "a"}]}, "has no 'role' in message 0"),
        ({"messages": [{"role": "user"}]}, "is refused by the chat template"),
        ({"prompt": "a", "completion": 1}, "has a number in 'completion'"),
        ({"segments": [{"text": "a"}]}, "has a segment without 'label'"),
        ({"input_ids": "abc"}, "has no list of tokens"),
        ({"input_ids": [1.5]}, "has no list of tokens"),
        ({"input_ids": [-1]}, "has no list of tokens"),
        ({"input_ids": [1, True]}, "has no list of tokens"),
        ({"input_ids": [1, 2], "labels": [1]}, "has 2 tokens, but 1 entries in 'labels'"),
        ({"input_ids": [1, 2], "labels": [1, 3]}, "has 3 at 1 of 'labels'"),
        ({"input_ids": [1, 2], "loss_mask": [1, 2]}, "has 2 at 1 of 'loss_mask'"),
        ({"input_ids": [1], "labels": [1], "loss_mask": [1]}, "has both 'labels' and 'loss_mask'"),
        ({"messages": [{"role": "assistant", "content": "a", "weight": 2}]}, "the weight 2"),
    ],
)
def test_a_record_that_says_nothing_clear_is_refused(record: Any, what: str) -> None:
    with pytest.raises(RecordError) as refusal:
        READER.read(record, 9)
    assert what in refusal.value.message
    assert refusal.value.hint


def test_a_conversation_without_a_template_is_refused() -> None:
    with pytest.raises(RecordError, match="the tokenizer has no chat template"):
        RecordReader().read({"messages": CHATS[0]}, 9)


def test_a_format_is_kept_to() -> None:
    both = {"text": "a", "prompt": "b", "completion": "c"}
    assert learned(both, RecordReader(format="text")) == ["a"]
    assert learned(both, RecordReader(format="prompt")) == ["c"]
    with pytest.raises(RecordError, match="has no field 'messages'"):
        RecordReader(format="chat", template=TEMPLATE).read(both, 9)


def test_other_formats_and_templates_have_other_fingerprints() -> None:
    others = [
        RecordReader(),
        RecordReader("b"),
        RecordReader(format="prompt"),
        READER,
        RecordReader(template=ChatTemplate("chatml", CHATML, {"bos_token": "<s>"}, TODAY)),
        RecordReader(template=ChatTemplate("chatml", CHATML, {}, date(2025, 1, 1))),
    ]
    assert len({reader.fingerprint for reader in others}) == len(others)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-101, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "text", "label", "weight"]), inner)
    ),
    max_leaves=8,
)


@thorough
@given(record=st.dictionaries(st.sampled_from(sorted(READER.fields)), values, max_size=4))
def test_any_record_is_read_or_refused_in_our_own_words(record: dict[str, Any]) -> None:
    found = outcome(lambda: READER.read(record, 9))
    assert isinstance(found, SourceText | SourceTokens | PenstockError)
