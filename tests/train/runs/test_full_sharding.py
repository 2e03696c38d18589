"""Fully sharded weights are trained, stored, continued and exported like whole ones."""

from pathlib import Path

import pytest
from torch import Tensor

from loops import one_of
from train.runs.kills import weights
from train.runs.ranks import Ran, Setting

pytestmark = pytest.mark.torch

CLOSE = 1e-9
"""Relative error in float64 when only the order of additions has changed."""
SPREADS: dict[str, tuple[int, tuple[str, ...]]] = {
    "one device": (2, ("devices=1", "schedule=breadth-first", "chunks=4")),
    "two devices": (4, ("devices=2", "schedule=interleaved", "chunks=2")),
}
"""Ranks of two replicas, and their pipeline: stages of a device take turns in buffers."""
HALF, STEPS = 3, 6


def trained(setting: Setting, spread: str, name: str, shard: str, steps: int) -> Ran:
    """Two replicas go on to a step, and export their weights."""
    ranks, pipeline = SPREADS[spread]
    ran = setting.run(
        *(f"pipeline.{each}" for each in (*pipeline, "slices=1")),
        *("mesh.replicas=2", f"mesh.shard={shard}", "batch.microbatches=2"),
        *(f"run.steps={steps}", f"optimizer.schedule_steps={STEPS}", "optimizer.clip=0.05"),
        f"checkpoint.export={exported(setting, name)}",
        name=name,
        ranks=ranks,
    )
    assert set(ran.codes) == {0}, ran.said
    return ran


def exported(setting: Setting, name: str) -> Path:
    return setting.folder / f"export-of-{name}"


def apart(found: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    """The largest difference of a parameter, over its largest element."""
    assert found.keys() == right.keys()
    return max(float((found[n] - t).abs().max() / t.abs().max()) for n, t in right.items())


@pytest.mark.parametrize("spread", one_of(2, ((spread,) for spread in SPREADS)))
def test_weights_are_sharded_or_whole_before_and_after_a_checkpoint_with_the_same_result(
    setting: Setting, spread: str
) -> None:
    """Losses of all steps, and the exported weights; every step clips."""
    base = spread.replace(" ", "-")
    straight = trained(setting, spread, f"{base}-whole", "none", STEPS)
    right = weights(setting, exported(setting, f"{base}-whole"))
    assert min(record["norm"] for record in straight.metrics) > 0.05
    for first, second in (("full", "none"), ("none", "full")):
        name = f"{base}-{first}-then-{second}"
        begun = trained(setting, spread, name, first, HALF)
        assert begun.losses == pytest.approx(straight.losses[:HALF], rel=CLOSE, abs=0)
        halfway = weights(setting, exported(setting, name))
        ended = trained(setting, spread, name, second, STEPS)
        assert f"continues from step {HALF}, " in ended.said[0]
        assert ended.losses == pytest.approx(straight.losses, rel=CLOSE, abs=0)
        found = weights(setting, exported(setting, name))
        assert apart(found, right) < CLOSE < apart(halfway, right)


def test_the_report_compares_a_run_whose_weights_are_sharded(setting: Setting) -> None:
    """Its engine has given its memory back by then; what it held is still known."""
    ran = setting.run(
        *("pipeline.schedule=interleaved", "pipeline.chunks=2", "pipeline.slices=1"),
        *("mesh.replicas=2", "mesh.shard=full", "batch.microbatches=2", "run.steps=2"),
        *("log.report=true", 'log.compare=["1f1b"]'),
        name="compared",
        ranks=4,
    )
    assert set(ran.codes) == {0}, ran.said
    report = (ran.folder / "report.txt").read_text()
    assert "1f1b          measured" in report
