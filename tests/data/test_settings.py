"""Settings that contradict themselves are refused before anything is read."""

import subprocess
import sys
from typing import Any

import pytest

from loops import each
from penstock.data.settings import DataSettings
from penstock.errors import ShapeError


@each(
    ("fields", "message", "hint"),
    [
        ({"source": "txt"}, "data.source is 'txt'", "did you mean 'text'?"),
        ({"dtype": "uint15"}, "data.dtype is 'uint15'", "did you mean"),
        ({"held_out": 1.0}, "data.held_out is 1.0", "from 0 to below 1"),
        ({"held_out": -0.1}, "data.held_out is -0.1", "from 0 to below 1"),
        ({"held_out": float("nan")}, "data.held_out is nan", "from 0 to below 1"),
        ({"limit_bytes": -1}, "data.limit_bytes is -1", "0 for all"),
        ({"paths": ("a",)}, "but paths are given: a", "'text'"),
        ({"held_out_paths": ("a",)}, "but paths are given: a", "'text'"),
        ({"source": "text"}, "data.paths is empty", "name files"),
        ({"source": "text", "paths": "a"}, "data.paths is one string", "a list of paths"),
        (
            {"source": "text", "paths": ("a",), "held_out": 0.1, "held_out_paths": ("b",)},
            "data.held_out is 0.1, but data.held_out_paths",
            "not both",
        ),
        (
            {"source": "tokens", "paths": ("a",), "limit_bytes": 9},
            "data.limit_bytes is 9, but data.source is 'tokens'",
            "as they are",
        ),
        (
            {"source": "tokens", "paths": ("a",), "end_token": "</s>"},
            "data.end_token is '</s>', but data.source is 'tokens'",
            "as they are",
        ),
        ({"format": "chats"}, "data.format is 'chats'", "did you mean 'chat'?"),
        ({"packing": "hole"}, "data.packing is 'hole'", "did you mean 'whole'?"),
        ({"longer": "split"}, "data.longer is 'split', but data.packing is 'cut'", "leave"),
        ({"format": "chat"}, "data.format is 'chat', but data.source is 'stdlib'", "only records"),
        ({"chat_template": "x"}, "data.chat_template is 'x', but data.source", "no chat"),
        ({"template_date": "today"}, "data.template_date is 'today'", "2024-07-26"),
        (
            {"source": "text", "paths": ("a", "b"), "weights": (1.0,)},
            "data.weights has 1 entries for 2 of data.paths",
            "one weight for each",
        ),
        (
            {"source": "text", "paths": ("a",), "weights": (0.0,)},
            "data.weights has 0.0",
            "above 0",
        ),
        (
            {"source": "text", "paths": ("a",), "weights": (float("inf"),)},
            "data.weights has inf",
            "above 0",
        ),
    ],
)
def test_a_wrong_setting_is_refused(fields: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(ShapeError) as refusal:
        DataSettings(**fields)
    assert message in refusal.value.message
    assert hint in refusal.value.hint


@pytest.mark.processes
def test_the_settings_are_read_without_torch() -> None:
    script = "import sys, penstock.data as d; d.DataSettings(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n"
