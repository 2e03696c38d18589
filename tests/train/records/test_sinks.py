"""Records reach every sink, and a sink without its package is refused at the start."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.errors import RunError
from penstock.train.config.settings import Settings
from penstock.train.records.metrics import Metrics, Timing
from penstock.train.records.sinks import open_sinks, scalars
from train.samples import short

METRICS = Metrics(1, 5.5, 2.0, 0.01, 4096, evaluation=5.25)
TIMING = Timing(1, 0.5, 8192.0, None, (10, 20), 0.25, 1e9)


def settings(folder: Path, *overrides: str) -> Settings:
    return short(f"run.directory={json.dumps(str(folder))}", *overrides)


def record(run: Settings, done: int = 0) -> None:
    sinks = open_sinks(run, done)
    sinks.metrics(METRICS)
    sinks.timing(TIMING)
    sinks.sync()
    sinks.close()


def test_the_files_are_always_written(tmp_path: Path) -> None:
    record(settings(tmp_path / "run"))
    metrics = json.loads((tmp_path / "run/metrics.jsonl").read_text())
    timing = json.loads((tmp_path / "run/timing.jsonl").read_text())
    assert (metrics["loss"], metrics["evaluation"]) == (5.5, 5.25)
    assert (timing["memory"], timing["bubble"]) == ([10, 20], 0.25)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "metrics.jsonl",
        "timing.jsonl",
    ]


def test_scalars_are_the_numbers_of_a_record_with_the_largest_of_each_device() -> None:
    assert scalars(TIMING) == {
        "seconds": 0.5,
        "tokens_per_second": 8192.0,
        "memory": 20.0,
        "bubble": 0.25,
    }


class FakeRun:
    """What `wandb.init` returns, as far as it is used."""

    def __init__(self, **given: Any) -> None:
        self.given, self.finished = given, False
        self.logged: list[tuple[int, dict[str, float]]] = []

    def log(self, values: dict[str, float], step: int) -> None:
        self.logged.append((step, values))

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def wandb_runs(monkeypatch: pytest.MonkeyPatch) -> list[FakeRun]:
    """A package in the place of wandb, whose runs are kept."""
    runs: list[FakeRun] = []

    def init(**given: Any) -> FakeRun:
        runs.append(FakeRun(**given))
        return runs[-1]

    package = ModuleType("wandb")
    package.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", package)
    return runs


def test_wandb_gets_the_records_and_the_resolved_configuration(
    tmp_path: Path, wandb_runs: list[FakeRun]
) -> None:
    record(settings(tmp_path / "mine", "log.wandb=project"))
    (run,) = wandb_runs
    assert (run.given["project"], run.given["name"]) == ("project", "mine")
    assert run.given["config"]["pipeline"]["schedule"] == "gpipe"
    assert run.logged == [(1, scalars(METRICS)), (1, scalars(TIMING))]
    assert run.finished


def test_a_run_that_goes_on_is_the_same_run_to_wandb(
    tmp_path: Path, wandb_runs: list[FakeRun]
) -> None:
    for folder in ("one", "one", "other"):
        record(settings(tmp_path / folder, "log.wandb=project"))
    first, second, other = (run.given["id"] for run in wandb_runs)
    assert first == second
    assert first != other
    assert {run.given["resume"] for run in wandb_runs} == {"allow"}


@pytest.mark.parametrize(
    ("module", "override", "extra"),
    [
        ("wandb", "log.wandb=project", "wandb"),
        ("torch.utils.tensorboard", "log.tensorboard=true", "log"),
    ],
)
def test_a_missing_package_is_refused_with_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, override: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RunError) as caught:
        record(settings(tmp_path, override))
    assert override.partition("=")[0] in caught.value.message
    assert caught.value.hint.startswith(f"pip install 'penstock[{extra}]'")


@pytest.mark.torch
def test_tensorboard_gets_the_records(tmp_path: Path) -> None:
    record(settings(tmp_path, "log.tensorboard=true"))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert {"loss", "norm", "rate", "tokens", "evaluation", "bubble"} <= {*events.Tags()["scalars"]}
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 5.5)]
