"""The package itself: its public names, and what it costs to import it."""

import subprocess
import sys

import pytest

import penstock


def test_every_public_name_can_be_had() -> None:
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    assert set(penstock.__all__) < set(dir(penstock))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'nope'"):
        getattr(penstock, "nope")  # noqa: B009 - a plain access would not pass the type checker


def test_a_schedule_goes_the_whole_way_with_public_names_only() -> None:
    schedule = penstock.build("1f1b", devices=4, microbatches=8)
    assert penstock.simulate(schedule).makespan == 33


@pytest.mark.processes
def test_importing_the_package_loads_nothing_heavy() -> None:
    script = "import sys, penstock; print('numpy' in sys.modules, 'typer' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False False\n"
