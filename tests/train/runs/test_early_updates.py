"""Runs that validate updates after they were made leave the same records and weights."""

import pytest

from train.runs.ranks import Ran, Setting

pytestmark = pytest.mark.torch

STEPS = 6
CLIP = 2.0


def trained(setting: Setting, name: str, validation: str, steps: int) -> Ran:
    ran = setting.run(
        *(f"run.steps={steps}", f"optimizer.schedule_steps={STEPS}", f"optimizer.clip={CLIP}"),
        *(f"optimizer.validation={validation}", "checkpoint.every=2"),
        *("evaluation.every=3", "evaluation.batches=1", "data.held_out=0.2"),
        name=name,
    )
    assert ran.codes == (0, 0), ran.said
    return ran


@pytest.mark.matrix
def test_a_run_writes_the_same_bytes_whenever_its_updates_are_validated(setting: Setting) -> None:
    """Straight, and continued from a checkpoint the other way."""
    right = trained(setting, "validated-before", "before", STEPS)
    norms = [record["norm"] for record in right.metrics]
    assert min(norms) < CLIP < max(norms)  # some steps were clipped
    assert trained(setting, "validated-after", "after", STEPS).records == right.records
    trained(setting, "validated-both-ways", "after", STEPS // 2)
    assert trained(setting, "validated-both-ways", "before", STEPS).records == right.records
