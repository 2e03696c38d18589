"""Every registered schedule, on real processes, under every variant."""

import pytest

from penstock.run.verify.cases import half, smallest, trials_of
from penstock.run.verify.variants import VARIANTS
from penstock.run.verify.verifier import Verifier
from penstock.schedules import registry

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", list(registry()))
def test_a_schedule_is_equal_to_one_process_under_every_variant(
    verifier: Verifier, name: str
) -> None:
    spec = registry()[name]
    case = smallest(spec)
    halved = half(spec, case, {})
    assert halved is not None
    trials, _ = trials_of(spec.build(case), spec.build(halved))
    rows = [verifier.row(trial) for trial in trials]
    assert [row.explanation for row in rows] == [""] * len(VARIANTS)
    assert all(row.equal for row in rows)
