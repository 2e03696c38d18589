import pytest

from every_schedule.cases import completed, name_of, specs
from penstock.files.text import loads
from penstock.schedules import Spec
from write_golden import FOLDER, golden


@pytest.mark.parametrize("spec", specs(), ids=name_of)
def test_the_lanes_are_those_on_record(spec: Spec) -> None:
    assert golden(spec) == (FOLDER / f"{spec.name}.txt").read_text(), (
        "python scripts/write_golden.py writes them anew"
    )


@pytest.mark.parametrize("spec", specs(), ids=name_of)
def test_the_record_reads_back_as_the_schedule(spec: Spec) -> None:
    recorded = loads((FOLDER / f"{spec.name}.txt").read_text())
    assert recorded == spec.build(completed(spec, spec.cases[0]))
