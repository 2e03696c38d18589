"""Chat templates: found beside a tokenizer, run in a sandbox, refused where they tell nothing."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from data.records.conversations import CHATML, CHATS, MARKED
from penstock.data.records.chat import ChatTemplate, find_template
from penstock.data.records.refusal import RecordError
from penstock.errors import ShapeError

TODAY = date(2024, 7, 26)


def template(source: str) -> ChatTemplate:
    return ChatTemplate("here", source, {"bos_token": "<s>"}, TODAY)


def test_a_template_is_found_where_tokenizers_keep_it(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    assert find_template(str(folder), "", "2024-07-26") is None
    several = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": CHATML}]
    config: dict[str, Any] = {"chat_template": several, "eos_token": {"content": "</s>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "special_tokens_map.json").write_text('{"bos_token": "<s>"}')
    found = find_template(str(folder / "tokenizer.json"), "", "2024-07-26")
    assert found
    assert found.source == CHATML
    assert found.tokens == {"eos_token": "</s>", "bos_token": "<s>"}
    (folder / "chat_template.jinja").write_text(MARKED)
    newer = find_template(str(folder), "", "2024-07-26")
    assert newer
    assert newer.source == MARKED
    (tmp_path / "own.jinja").write_text("mine")
    own = find_template(str(folder), str(tmp_path / "own.jinja"), "2024-07-26")
    assert own
    assert (own.source, own.tokens) == ("mine", found.tokens)


def test_a_template_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.jinja").write_text("{% for %}")
    with pytest.raises(ShapeError, match=r"the chat template of '.*x\.jinja' cannot be read"):
        find_template("byte", str(tmp_path / "x.jinja"), "2024-07-26")
    with pytest.raises(ShapeError, match="cannot read"):
        find_template("byte", str(tmp_path / "none.jinja"), "2024-07-26")


def test_the_date_is_the_one_of_the_settings() -> None:
    found = template("{{ strftime_now('%d %b %Y') }}{{ messages[0].content }}").render(CHATS[2], [])
    assert found.text == "26 Jul 2024nobody answers"


def test_a_template_reaches_nothing() -> None:
    for source in (
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception('no') }}",
        "{{ 1 / 0 }}",
    ):
        with pytest.raises(RecordError, match="is refused by the chat template"):
            template(source).render(CHATS[2], None)


def test_a_turn_that_is_written_differently_later_is_refused() -> None:
    """As templates do that leave the reasoning of earlier turns out."""
    kept = "(message['content'] if loop.last or message['role'] == 'user' else '') +"
    forgetful = CHATML.replace("message['content'] +", kept)
    assert template(forgetful).render(CHATS[0], None).counted
    with pytest.raises(RecordError, match="message 2, which the chat template writes differently"):
        template(forgetful).render(CHATS[1], None)


def test_reasoning_is_given_under_the_names_that_templates_read() -> None:
    shown = template("{{ messages[0].reasoning_content }} {{ messages[0].thinking }}")
    assert shown.render([{"role": "user", "thinking": "so"}], None).text == "so so"


def test_weights_need_a_mark_for_each_turn() -> None:
    silent = [{"role": "assistant", "content": "a", "weight": 0}]
    found = template(MARKED).render([*CHATS[0], *silent], None)
    ((start, stop),) = found.counted
    assert found.text[start:stop] == "that is the question<|im_end|>"
    twice = MARKED.replace(
        "{% generation %}", "{% generation %}{% endgeneration %}{% generation %}"
    )
    with pytest.raises(RecordError, match="marks 2 parts of the text for 1 turns"):
        template(twice).render(silent, None)
