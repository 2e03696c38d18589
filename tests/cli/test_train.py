"""`train`: what it shows, and what it refuses before it starts a process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cli.conftest import Penstock
from penstock.arch.families import to_huggingface
from penstock.run.process import machine
from penstock.run.process.machine import Machine
from penstock.train.config.load import load, loads
from penstock.train.config.save import save
from penstock.train.loop import before_start, start
from train.runs.ranks import MODEL

pytestmark = pytest.mark.torch

TINY = """
[run]
steps = 2
directory = "{folder}/run"

[model]{model}
[batch]
length = 8

[pipeline]
schedule = "1f1b"
devices = 2
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY.format(folder=tmp_path, model=MODEL))
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


def test_the_settings_are_shown_as_json_too(penstock: Penstock, config: Path) -> None:
    answer = penstock(f"train {config} --show --json --set run.steps=7")
    assert answer.code == 0
    assert answer.data == load(config, ["run.steps=7"]).model_dump(mode="json")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("--set run.stesp=7", "[run] has no key 'stesp'", "did you mean 'steps'?"),
        ("--set rnu.steps=7", "there is no section [rnu]", "did you mean 'run'?"),
        ("--set run.steps=many", "run.steps is 'many'", "give an integer"),
        (
            "-n 3",
            "3 processes cannot be pipeline.devices 2",
            "start 2 of them, or change these sizes",
        ),
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
        "  --set 'batch.rows=0': batch.rows is 0; give an integer of 1 or more",
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


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of processes that were asked for; none is started."""
    asked: list[int] = []

    def launch(command: object, count: int, **_: object) -> int:
        asked.append(count)
        return 0

    monkeypatch.setattr(start, "launch", launch)
    return asked


WAITING = """name: waiting
devices: 2
stages: 2
slices: 1 x 2
after: 0F1 1F0
0 compute: 0F0 0F1 0B0 0B1
1 compute: 1F0 1F1 1B0 1B1
"""

REFUSED = {
    "a schedule that cannot be run": (
        "--set pipeline.schedule={0}/waiting.txt --set batch.microbatches=2",
        "waiting has `after` orders between devices: 0F1",
        "it can be checked, simulated and drawn",
    ),
    "a device that is not there": (
        "--set run.device=cuda",
        "run.device is cuda, but this machine has no CUDA device",
        'set run.device to "auto" or "cpu"',
    ),
    "data that is not there": (
        "--set data.source=text --set data.paths=['{0}/none.txt']",
        "no file matches",
        "give files",
    ),
    "held-out data that is not there": (
        "--set data.source=text --set data.paths=['{0}'] --set data.held_out_paths=['{0}/none']",
        "no file matches",
        "give files",
    ),
    "a tokenizer that is not there": (
        "--set data.tokenizer={0}/none.json",
        "cannot read",
        "data.tokenizer is 'byte' or the path",
    ),
    "a checkpoint that is not there": (
        "--set checkpoint.resume={0}/none",
        "which is not a folder",
        'give "auto", "never" or a folder',
    ),
    "an export into a file": (
        "--set checkpoint.export={0}/tiny.toml/weights",
        "is not a folder that can be written to",
        "give a folder that can be made",
    ),
    "an export in the place of something else": (
        "--set checkpoint.export={0}",
        "is not a model that could be replaced",
        "give a folder",
    ),
    "an export into a name that is too long": (
        f"--set checkpoint.export={{0}}/{'x' * 300}",
        "File name too long",
        "",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_begin_or_end_well_is_refused_before_a_process_starts(
    penstock: Penstock, config: Path, started: list[int], case: str
) -> None:
    if case == "a device that is not there" and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    words, message, hint = REFUSED[case]
    (config.parent / "waiting.txt").write_text(WAITING)
    answer = penstock(f"train {config} {words.format(config.parent)}")
    assert (answer.code, answer.out, started) == (2, "", []), answer.err
    first, *rest = answer.err.splitlines()
    assert message in first
    assert rest[0].startswith(f"hint: {hint}")
    assert not (config.parent / "run").exists()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), "cannot read"),
        (("config.json",), "has neither model.safetensors nor"),
        (("config.json", "model.safetensors.index.json"), "lacks lm_head.weight"),
    ],
)
def test_weights_that_are_not_there_are_refused_before_a_process_starts(
    penstock: Penstock, config: Path, started: list[int], files: tuple[str, ...], message: str
) -> None:
    folder = config.parent / "weights"
    folder.mkdir()
    content = {
        "config.json": to_huggingface(load(config).model.config),
        "model.safetensors.index.json": {"weight_map": {}},
    }
    for name in files:
        (folder / name).write_text(json.dumps(content[name]))
    text = config.read_text()
    own = text[text.index("[model]") : text.index("[batch]")]
    config.write_text(text.replace(own, f"[model]\nhuggingface = '{folder}'\n"))
    answer = penstock(f"train {config}")
    assert (answer.code, answer.out, started) == (2, "", [])
    assert message in answer.err


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("safetensors", "--set checkpoint.export={0}/weights", "hf"),
        ("tokenizers", "--set data.tokenizer={0}/tokenizer.json", "hf"),
        ("tensorboard", "--set log.tensorboard=true", "log"),
        ("wandb", "--set log.wandb=project", "wandb"),
    ],
)
def test_a_missing_extra_is_named_before_a_process_starts(
    penstock: Penstock,
    config: Path,
    started: list[int],
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    words: str,
    extra: str,
) -> None:
    there = before_start.find_spec
    monkeypatch.setattr(
        before_start, "find_spec", lambda name: None if name == package else there(name)
    )
    answer = penstock(f"train {config} {words.format(config.parent)}")
    assert (answer.code, started) == (2, [])
    assert answer.err == (
        f"error: the settings need the package {package}, which is not installed\n"
        f"hint: pip install 'penstock[{extra}]'\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-n 4096 --set pipeline.devices=0", "4,096 processes would share 2 cores"),
        ("--set mesh.replicas=5000", "10,000 processes would share 2 cores"),
        ("--set batch.length=100000000", " are free"),
        ("--set model.vocabulary=100000000000", " are free"),
        ("--set model.layers=9999 --set model.hidden=65536", " are free"),
    ],
)
def test_what_the_machine_has_no_room_for_is_refused_with_the_figures(
    penstock: Penstock,
    config: Path,
    started: list[int],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    message: str,
) -> None:
    monkeypatch.setattr(machine, "this_machine", lambda: Machine(cores=2, free=16 * 10**9))
    answer = penstock(f"train {config} {words}")
    assert (answer.code, answer.out, started) == (2, "", [])
    assert message in answer.err
    assert "or start anyway with --force" in answer.err


def test_force_goes_on_nevertheless(
    penstock: Penstock, config: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "this_machine", lambda: Machine(cores=0.01, free=0))
    assert penstock(f"train {config}").code == 2
    assert started == []
    assert penstock(f"train {config} --force").code == 0
    assert started == [2]


def test_another_model_in_the_folder_of_a_run_is_told_by_its_key(
    penstock: Penstock, config: Path, started: list[int]
) -> None:
    settings = load(config)
    save(settings)
    (config.parent / "run/checkpoints/step-00000002").mkdir(parents=True)
    assert penstock(f"train {config} --set model.rope_theta=5e5 --force").code == 0
    answer = penstock(f"train {config} --set model.hidden=32 --set model.tied=true")
    assert (answer.code, started) == (2, [2])
    folder = config.parent / "run"
    assert answer.err.splitlines()[0] == (
        f"error: the run in {str(folder)!r} has another model: model.hidden is 32, but was 16; "
        "model.tied is True, but was False"
    )
    resumed = f"--set checkpoint.resume={folder}/checkpoints --set run.directory={folder}/new"
    answer = penstock(f"train {config} --set model.heads=1 --set model.head_size=16 {resumed}")
    assert "model.head_size is 16, but was 8" in answer.err
    never = "--set model.hidden=32 --set checkpoint.resume=never --force"
    assert penstock(f"train {config} {never}").code == 0
