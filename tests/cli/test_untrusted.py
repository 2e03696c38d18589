"""What a file says that cannot be trusted is told as text, and does not steer the terminal."""

import json
import unicodedata
from pathlib import Path

import pytest

from cli.conftest import Penstock

CLEAR = "\x1b[2J\x1b]0;title\x07"
"""Clears the screen and sets the title of the window."""


@pytest.mark.torch
@pytest.mark.parametrize("where", ["section", "key", "value", "config.json", "schedule"])
def test_what_a_file_says_is_escaped(where: str, tmp_path: Path, penstock: Penstock) -> None:
    toml = json.dumps(CLEAR)
    texts = {
        "section": f"[{toml}]\n",
        "key": f'[pipeline]\nschedule = "gpipe"\n{toml} = 1\n',
        "value": f'[pipeline]\nschedule = "gpipe"\n[run]\ndtype = {toml}\n',
        "config.json": f'[pipeline]\nschedule = "gpipe"\n[model]\nhuggingface = "{tmp_path}"\n',
        "schedule": f'[pipeline]\nschedule = "{tmp_path}/lanes.txt"\n',
    }
    (tmp_path / "lanes.txt").write_text(f"{CLEAR} says: 1\n")
    stated = dict.fromkeys(("num_hidden_layers", "hidden_size", "intermediate_size"), 1)
    stated |= dict.fromkeys(("num_attention_heads", "vocab_size", CLEAR), 1)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **stated}))
    (tmp_path / "mine.toml").write_text(texts[where])
    answer = penstock(f"train {tmp_path}/mine.toml -n 1")
    assert answer.code == 2
    assert "title" in answer.err
    assert not any(unicodedata.category(char) == "Cc" for char in answer.err.replace("\n", ""))
