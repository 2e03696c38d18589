"""`train`: what it shows, and what it refuses before it starts a process."""

import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import Penstock
from penstock.train.config.load import load, loads

pytestmark = pytest.mark.torch

TINY = """
[run]
steps = 2
directory = "{folder}/run"

[model]
layers = 4
hidden = 16
ffn = 24
heads = 2
kv_heads = 1
head_size = 8
vocabulary = 256

[batch]
length = 8

[pipeline]
schedule = "1f1b"
devices = 2
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY.format(folder=tmp_path))
    return path


def test_show_prints_every_setting_as_a_file_that_reads_back(
    penstock: Penstock, config: Path
) -> None:
    change = "optimizer.betas=[0.8,0.9]"
    answer = penstock(f"train {config} --show --set run.steps=7 --set {change}")
    assert answer.code == 0
    shown = loads(answer.out)
    assert shown == load(config, ["run.steps=7", change])
    assert (shown.run.steps, shown.optimizer.betas) == (7, (0.8, 0.9))
    assert not (config.parent / "run").exists()


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("--set run.stesp=7", "[run] has no key 'stesp'", "did you mean 'steps'?"),
        ("--set rnu.steps=7", "there is no section [rnu]", "did you mean 'run'?"),
        ("--set run.steps=many", "run.steps is 'many'", "give a whole number"),
        ("-n 3", "3 processes cannot be 1 replicas of 2 devices", "start 2 processes"),
        ("-n -1", "-1 processes", "give -n 1 or more"),
        ("--set pipeline.devices=0", "0 processes", "give -n 1 or more, or set pipeline.devices"),
        (
            "--set pipeline.slices=9",
            "pipeline.slices is 9, but batch.length is 8 tokens",
            "at most",
        ),
        ("--set pipeline.schedule=1f2b", "1f2b", "did you mean '1f1b'?"),
    ],
)
def test_what_cannot_be_run_is_refused_at_once(
    penstock: Penstock, config: Path, words: str, message: str, hint: str
) -> None:
    answer = penstock(f"train {config} {words}")
    assert answer.code == 2
    assert message in answer.err.splitlines()[0]
    assert hint in answer.err.splitlines()[1]
    assert answer.out == ""
    assert not (config.parent / "run").exists()


def test_a_wrong_key_is_told_with_its_line(penstock: Penstock, config: Path) -> None:
    config.write_text(config.read_text().replace("heads = 2", "haeds = 2"))
    answer = penstock(f"train {config}")
    assert answer.code == 2
    assert answer.err.splitlines() == [
        f"error: {config}, line 10, column 1: [model] has no key 'haeds'",
        "hint: did you mean 'heads'?",
    ]


def test_a_file_that_is_not_there_is_refused(penstock: Penstock, tmp_path: Path) -> None:
    answer = penstock(f"train {tmp_path / 'none.toml'}")
    assert answer.code == 2
    assert "none.toml': No such file or directory" in answer.err


def test_of_the_ranks_of_a_machine_only_the_first_says_that_the_file_is_wrong(
    penstock: Penstock, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("LOCAL_RANK", rank)
        answer = penstock(f"train {config} --set run.stesp=7")
        assert answer.code == 2
        said.append(answer.err)
    assert "no key 'stesp'" in said[0]
    assert said[1] == ""


def test_a_folder_that_cannot_be_made_is_refused(penstock: Penstock, config: Path) -> None:
    answer = penstock(f"train {config} --set run.directory={config}/run")
    assert answer.code == 2
    assert "cannot make" in answer.err
    assert "hint: set run.directory" in answer.err


def test_several_mistakes_are_told_at_once(penstock: Penstock, config: Path) -> None:
    answer = penstock(f"train {config} --set run.stesp=7 --set batch.rows=0")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.splitlines() == [
        f"error: {config} has 2 mistakes",
        "  --set 'run.stesp=7': [run] has no key 'stesp'; did you mean 'steps'?",
        "  --set 'batch.rows=0': batch.rows is 0; give a whole number of 1 or more",
    ]


@pytest.mark.processes
@pytest.mark.parametrize("words", ["x.toml", "--schema"])
def test_without_pydantic_the_extra_to_install_is_named(words: str) -> None:
    code = (
        "import sys; sys.modules['pydantic'] = None\n"
        "from penstock.cli.main import main\n"
        f"sys.exit(main(['train', {words!r}]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.splitlines() == [
        "error: reading a configuration needs pydantic, which is not installed",
        "hint: pip install 'penstock[run]'",
    ]


@pytest.mark.processes
def test_without_pydantic_the_verbs_that_do_not_train_work() -> None:
    code = (
        "import sys; sys.modules['pydantic'] = None\n"
        "from penstock.cli.main import main\n"
        "for line in ('list', 'show gpipe -p 2 -m 2', 'check gpipe -p 2 -m 2',\n"
        "             'simulate gpipe -p 2 -m 2', 'compare gpipe 1f1b -p 2 -m 2',\n"
        "             'best -p 2 -m 2'):\n"
        "    assert main(line.split()) == 0, line\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.returncode, run.stderr.count("Error")) == (0, 0), run.stderr
