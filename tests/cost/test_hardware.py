from dataclasses import replace
from fractions import Fraction

import pytest

from penstock.cost.hardware import HARDWARE, hardware
from penstock.errors import ShapeError


def test_every_record_can_be_found_and_a_misspelt_one_gets_a_hint() -> None:
    assert all(hardware(name) is record for name, record in HARDWARE.items())
    with pytest.raises(ShapeError, match="did you mean 'h200'"):
        hardware("h20")


@pytest.mark.parametrize("change", [{"linear": 0}, {"link": -1}, {"latency": Fraction(-1)}])
def test_rates_that_never_end_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(ShapeError, match=f"the rate {next(iter(change))}"):
        replace(hardware("h200"), **change)
