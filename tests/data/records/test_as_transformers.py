"""The same records, tokenised by `transformers`: token for token and label for label."""

import json
from pathlib import Path
from typing import Any

import pytest

from data.records.conversations import CHATML, CHATS, MARKED, tokenizer_folder
from penstock.data import IGNORE, DataSettings, open_data

pytestmark = [pytest.mark.torch, pytest.mark.long]

Expected = tuple[list[int], list[int]]
"""Tokens, and labels at the places of their tokens."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("tokenizers")
    return tokenizer_folder(tmp_path / "tokenizer")


def foreign(folder: Path, template: str = "") -> Any:
    """The tokenizer as `transformers` loads it."""
    transformers = pytest.importorskip("transformers")
    found = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    if template:
        found.chat_template = template
    return found


def ours(tmp_path: Path, folder: Path, records: list[Any], **fields: Any) -> set[str]:
    """Every document as tokens and labels, through files, cache and samples."""
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    settings = DataSettings(
        source="jsonl", paths=(str(path),), tokenizer=str(folder), packing="single", **fields
    )
    stream = open_data(settings, 256, 400, 0, tmp_path / "cache").train
    assert stream.count == len(records)
    found = set()
    for number in range(stream.count):
        row, (length,) = stream.row(number), stream.lengths([number])
        labels = [IGNORE, *row.labels[: length - 1].tolist()]  # at the place of the token itself
        assert row.labels[length - 1] == IGNORE
        found.add(str((row.tokens[:length].tolist(), labels)))
    return found


def masked(tokens: list[int], mask: list[int]) -> str:
    labels = [token if counts else IGNORE for token, counts in zip(tokens, mask)]
    return str((tokens, [IGNORE, *labels[1:]]))  # the first token follows nothing


@pytest.mark.parametrize("tools", [None, [{"type": "function", "function": {"name": "look"}}]])
def test_chats_whose_template_marks_the_assistant(tmp_path: Path, folder: Path, tools: Any) -> None:
    tokenizer_folder(folder, MARKED)
    library = foreign(folder)
    expected = set()
    for chat in CHATS:
        made = library.apply_chat_template(
            chat, tools=tools, return_dict=True, return_assistant_tokens_mask=True
        )
        expected.add(masked(made["input_ids"], made["assistant_masks"]))
    assert (
        ours(tmp_path, folder, [{"messages": chat, "tools": tools} for chat in CHATS]) == expected
    )


def test_chats_whose_template_marks_nothing(tmp_path: Path, folder: Path) -> None:
    """Turns end with a line break there, which belongs to the turn that it ends."""
    turn = "{{ message['content'] + '<|im_end|>' + '\\n' }}"
    marked = CHATML.replace(
        turn,
        "{% if message['role'] == 'assistant' %}{% generation %}" + turn + "{% endgeneration %}"
        "{% else %}" + turn + "{% endif %}",
    )
    library, plain = foreign(folder, marked), foreign(folder)
    expected = set()
    for chat in CHATS:
        made = library.apply_chat_template(
            chat, return_dict=True, return_assistant_tokens_mask=True
        )
        assert made["input_ids"] == plain.apply_chat_template(chat, return_dict=False)
        expected.add(masked(made["input_ids"], made["assistant_masks"]))
    assert ours(tmp_path, folder, [{"messages": chat} for chat in CHATS]) == expected


def test_prompts_with_completions_and_plain_text(tmp_path: Path, folder: Path) -> None:
    pairs = [
        ("to be or ", "not to be"),
        ("caf\u00e9:", " \U0001f375"),
        ("", "all of it"),
        ("a", "b"),
    ]
    library = foreign(folder)
    expected = set()
    for prompt, completion in pairs:
        made = library(prompt + completion)
        first = made.char_to_token(len(prompt))
        mask = [0] * first + [1] * (len(made["input_ids"]) - first)
        expected.add(masked(made["input_ids"], mask))
    made = library("just text")["input_ids"]
    expected.add(masked(made, [1] * len(made)))
    records = [{"prompt": prompt, "completion": completion} for prompt, completion in pairs]
    assert ours(tmp_path, folder, [*records, {"text": "just text"}]) == expected


def test_prompts_of_messages_and_instructions(tmp_path: Path, folder: Path) -> None:
    library = foreign(folder)
    prompt, completion = CHATS[0][:1], CHATS[0][1:]
    before = library.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
    whole = library.apply_chat_template(CHATS[0], return_dict=False)
    assert whole[: len(before)] == before
    expected = {masked(whole, [0] * len(before) + [1] * (len(whole) - len(before)))}
    record = {"prompt": prompt, "completion": completion}
    assert ours(tmp_path, folder, [record]) == expected
    texts = {"prompt": prompt[0]["content"], "completion": completion[0]["content"]}
    assert ours(tmp_path, folder, [texts], format="instruction") == expected


def test_ready_tokens_with_labels_as_a_collator_takes_them(tmp_path: Path, folder: Path) -> None:
    tokens = foreign(folder)("to be or not to be")["input_ids"]
    mask = [0, 0, 0, *[1] * (len(tokens) - 3)]
    labels = [token if counts else IGNORE for token, counts in zip(tokens, mask)]
    for record in (
        {"input_ids": tokens, "labels": labels},
        {"input_ids": tokens, "assistant_masks": mask},
        {"input_ids": tokens, "completion_mask": mask},
    ):
        assert ours(tmp_path, folder, [record]) == {masked(tokens, mask)}


def test_the_end_of_a_completion_is_learned_with_it(tmp_path: Path, folder: Path) -> None:
    library = foreign(folder)
    made = [*library("ab")["input_ids"], library.convert_tokens_to_ids("<|eos|>")]
    expected = {masked(made, [0, 0, 1, 1])}
    record = {"prompt": "a", "completion": "b"}
    assert ours(tmp_path, folder, [record], end_token="<|eos|>") == expected
