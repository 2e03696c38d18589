"""`train --json`: one document at the end of stdout, and everything else on stderr."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.train.records.metrics import TIMING, read_metrics
from train.runs.ranks import LIMIT, Setting

pytestmark = pytest.mark.torch


def test_stdout_is_one_document_with_the_figures_of_the_report(setting: Setting) -> None:
    words = setting.words(
        *("run.steps=3", "log.report=true", 'log.compare=["gpipe"]'),
        *("pipeline.devices=1", "optimizer.warmup_steps=0"),
        name="told",
    )
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *words, "--json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    told, folder = json.loads(done.stdout), setting.folder / "told"
    assert "step 3/3  loss" in done.stderr
    losses = [record["loss"] for record in read_metrics(folder / "metrics.jsonl")]
    seconds = [record["seconds"] for record in read_metrics(folder / TIMING)]
    assert told["finished"] is True
    assert (told["directory"], told["export"]) == (str(folder), None)
    assert (told["steps"], told["tokens"], told["loss"]) == (3, 3 * 4 * 32, losses[-1])
    means = (told["first_mean_loss"], told["last_mean_loss"])
    assert means == (losses[0], losses[-1])  # of half of the steps: of one
    assert told["tokens_per_second"] == pytest.approx(told["tokens"] / sum(seconds))
    assert Path(told["checkpoint"]).is_dir()
    report = (folder / "report.txt").read_text()
    assert [each["name"] for each in told["schedules"]] == ["seq1f1b", "gpipe"]
    for each in told["schedules"]:
        for what in ("predicted", "measured"):
            assert f"{each[f'{what}_seconds']:.3f}" in report
            (peak,) = each[f"{what}_peak"]
            assert f"{peak / 1e6:.2f}" in report


def test_a_run_without_a_report_has_its_document_too(setting: Setting) -> None:
    ran = setting.run("run.steps=2", name="brief", flags=("--json",))
    assert ran.codes == (0, 0), ran.said
    told = json.loads(ran.said[0][ran.said[0].index("{") :])
    assert (told["finished"], told["steps"], told["schedules"]) == (True, 2, [])
    assert told["loss"] == ran.losses[-1]
    assert "{" not in ran.said[1]
