"""`verify --modules`: a file of one's own, or a decoder without a record, against one process."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from cli.conftest import Penstock

pytestmark = pytest.mark.torch

EXAMPLE = Path(__file__).parents[2] / "examples/own_modules.py"
needs_transformers = pytest.mark.skipif(
    find_spec("transformers") is None, reason="needs transformers"
)
CONFIG = """{"model_type": "%s", "hidden_size": 16, "num_hidden_layers": 4,
"num_attention_heads": 4, "vocab_size": 29, "max_position_embeddings": 64}"""


@pytest.mark.processes
def test_a_file_of_ones_own_is_equal_to_one_process(penstock: Penstock) -> None:
    answer = penstock(f"verify zb-h1 -p 2 -m 4 --force --json --modules {EXAMPLE}")
    assert answer.code == 0, answer.err
    assert answer.data["equal"]
    assert answer.data["grad_error"] < 1e-6
    assert answer.data["stages"] == 2


@needs_transformers
@pytest.mark.processes
@pytest.mark.matrix
def test_a_folder_of_a_decoder_is_equal_to_one_process(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(CONFIG % "gpt_neox")
    answer = penstock(f"verify seq1f1b -p 2 -m 4 -k 3 --force --modules {tmp_path}")
    assert answer.code == 0, answer.err
    assert answer.out.splitlines()[-1].endswith("yes")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1f1b -p 3 -m 4", "2 modules for the 3 stages of 1f1b"),
        ("seq1f1b -p 2 -m 4 -k 2", "a Sequential takes whole sequences"),
        ("1f1b -p 2 -m 4 --mesh replicas=2", "--modules runs one schedule on one process for each"),
        ("vocab-1f1b -p 2 -m 4", "ops of kind D, E, S, T, which a plain module has no work for"),
    ],
)
def test_what_modules_cannot_run_is_refused(penstock: Penstock, line: str, words: str) -> None:
    answer = penstock(f"verify {line} --force --modules {EXAMPLE}")
    assert answer.code == 2
    assert words in answer.err
    assert "hint: " in answer.err


def test_a_file_that_lacks_something_is_refused(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def make_stages(): return []\n")
    answer = penstock(f"verify 1f1b -p 2 -m 4 --force --modules {tmp_path / 'mine.py'}")
    assert answer.code == 2
    assert "has no function loss_of, batch_of" in answer.err
    answer = penstock(f"verify 1f1b -p 2 -m 4 --force --modules {tmp_path / 'none.py'}")
    assert "is neither a Python file nor a folder" in answer.err
