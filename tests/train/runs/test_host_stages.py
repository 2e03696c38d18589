"""Runs with optimizer state on the host leave the same records, and continue either way."""

import json

import pytest

from train.runs.ranks import Ran, Setting

pytestmark = pytest.mark.torch

STEPS = 6
CLIP = 2.0


def trained(setting: Setting, name: str, stages: str, steps: int, *more: str) -> Ran:
    ran = setting.run(
        *(f"run.steps={steps}", f"optimizer.schedule_steps={STEPS}", f"optimizer.clip={CLIP}"),
        *(f"optimizer.host_stages={stages}", "checkpoint.every=3", *more),
        *("pipeline.schedule=chronos", "pipeline.slices=1", "pipeline.chunks=2"),
        name=name,
        flags=("--json",),
    )
    assert ran.codes == (0, 0), ran.said
    return ran


@pytest.mark.matrix
def test_a_run_writes_the_same_bytes_wherever_its_optimizer_is(setting: Setting) -> None:
    """Straight, and continued from a checkpoint of the other place, both ways."""
    right = trained(setting, "state-on-devices", "none", STEPS)
    norms = [record["norm"] for record in right.metrics]
    assert min(norms) < CLIP < max(norms)  # some steps were clipped
    for name, first, second in (("state-goes", "none", "deep"), ("state-comes", "deep", "none")):
        trained(setting, name, first, STEPS // 2)
        assert trained(setting, name, second, STEPS).records == right.records


def test_a_report_says_what_is_on_the_host(setting: Setting) -> None:
    ran = trained(setting, "state-reported", "deep", 2, "log.report=true")
    text = (ran.folder / "report.txt").read_text()
    assert "optimizer on the host, predicted" in text
    said = ran.said[0]
    (schedule,) = json.loads(said[said.index("\n{") : said.rindex("}") + 1])["schedules"]
    assert schedule["predicted_host_state"] == schedule["measured_host_state"]
    assert min(schedule["measured_host_state"]) > 0
