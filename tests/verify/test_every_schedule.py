"""Every registered schedule, on real processes, under every variant."""

import pytest

from penstock.schedules import registry
from penstock.verify.cases import trials_by_name
from penstock.verify.verifier import Verifier

pytestmark = pytest.mark.torch


PLANNED = {name: trials_by_name(spec)[0] for name, spec in registry().items()}


@pytest.mark.parametrize("name", [name for name, trials in PLANNED.items() if trials])
def test_a_schedule_is_equal_to_one_process_under_every_variant(
    verifier: Verifier, name: str
) -> None:
    rows = [verifier.row(trial) for trial in PLANNED[name]]
    assert [row.explanation for row in rows] == [""] * len(rows)
    assert all(row.equal for row in rows)
