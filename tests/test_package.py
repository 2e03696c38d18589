"""The package itself: its public names, the packages that are called, what an import costs."""

import inspect
import subprocess
import sys

import pytest

import penstock

VERBS = ("check", "draw", "lower")


def test_every_public_name_can_be_had() -> None:
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    assert set(penstock.__all__) < set(dir(penstock))


def test_what_is_public_is_told_to_type_checkers_too() -> None:
    source = inspect.getsource(penstock)
    told = source[source.index("if TYPE_CHECKING:") : source.index("__version__")]
    names = told.replace("(", " ").replace(")", " ").replace(",", " ").split()
    assert [name for name in penstock.__all__ if name not in names] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'nope'"):
        getattr(penstock, "nope")  # noqa: B009 - a plain access would not pass the type checker


def test_a_schedule_goes_the_whole_way_with_public_names_only() -> None:
    schedule = penstock.build("1f1b", devices=4, microbatches=8)
    assert penstock.check(schedule).proven
    assert isinstance(penstock.lower(schedule), penstock.Program)
    assert penstock.simulate(schedule).makespan == 33
    assert penstock.draw(schedule).text().startswith("1f1b   4 devices, 8 microbatches")


def test_every_error_is_public_and_caught_by_one() -> None:
    from penstock import errors

    kinds = {name for name, kind in vars(errors).items() if inspect.isclass(kind)}
    assert kinds - {"Any", "Sequence"} == {name for name in penstock.__all__ if "Error" in name}
    with pytest.raises(penstock.PenstockError):
        penstock.build("nope", devices=2, microbatches=2)


@pytest.mark.parametrize("name", VERBS)
def test_a_package_that_is_called_is_still_a_package(name: str) -> None:
    package = getattr(penstock, name)
    assert package is sys.modules[f"penstock.{name}"]
    assert inspect.ismodule(package)
    assert inspect.signature(package) == inspect.signature(package.__wrapped__)
    assert package.__wrapped__.__name__ == name


ORDERS = {
    "called first": "import penstock\n{call}\n{imports}",
    "imported first": "{imports}\nimport penstock\n{call}",
    "imported as an attribute": "import penstock.check as found, penstock\n{call}\nfound.explain",
    "taken out of the package": "from penstock import check, draw\ncheck({schedule})\n{imports}",
    "everything at once": "from penstock import *\nimport penstock\n{call}\n{imports}\nrun",
}


@pytest.mark.processes
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_calling_a_package_and_importing_from_it_work_in_either_order(order: str) -> None:
    schedule = "penstock.schedules.build('gpipe', devices=2, microbatches=2)"
    code = order.format(
        call=f"assert penstock.check({schedule}).proven\n"
        f"penstock.lower({schedule}).channels\npenstock.draw({schedule}).svg()",
        imports="from penstock.check import Finding, explain\nfrom penstock.draw import terminal\n"
        "from penstock.lower import needed_slots\nimport penstock.check.order",
        schedule="__import__('penstock').build('gpipe', devices=2, microbatches=2)",
    )
    script = f"import sys\nsys.modules['torch'] = None\nimport penstock.schedules\n{code}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.processes
def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = ("numpy", "numba", "torch", "typer", "rich")
    script = f"import sys, penstock; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n"
