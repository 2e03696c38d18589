"""A misspelt field of a record, of a claim or of a request is an error of the type checker."""

import subprocess
import sys
from pathlib import Path
from secrets import token_hex

import pytest

HOUSE = Path(__file__).resolve().parents[2]

FILE = """\
from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.schedules import Case, Claim, Need, Option, schedule

GROUP = Option("group", int, default=lambda c: c.p, text="a number of microbatches")


@schedule(
    name="typed",
    title="a record with every part",
    paper="",
    options=(GROUP,),
    needs=(Need(lambda c: c.m >= c[GROUP], "m >= group", "raise -m"),),
    claims=(Claim("peak", "m", lambda c: (c.m * c.act,) * c.p, "by hand"),),
    cases=(Case(2, 2),),
)
def typed(shape: Shape, group: int) -> Lanes:
    return [[("F", r, group, 0)] for r in range(shape.devices)]
"""

MISTAKES = {
    'title="a record': 'tittle="a record',
    "cases=(Case(2, 2),)": "cases=Case(2, 2)",
    'Claim("peak"': 'Claim("peek"',
    "c.m * c.act": "c.m * c.acts",
    "c[GROUP]": "c[GRUOP]",
    "c.m >= c[GROUP]": 'c.m >= c["group"]',
    "default=lambda c: c.p": 'default=lambda c: "p"',
    "Case(2, 2)": "Case(2, 2, slices=2)",
}
"""A spelling that is right, and one that is not."""


def complaints(folder: Path, texts: list[str]) -> list[str]:
    """The files of which the type checker complains."""
    own = token_hex(4)  # the type checker remembers modules by name, with the folder they were in
    for number, text in enumerate(texts):
        (folder / f"record{number}_{own}.py").write_text(text)
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(folder)],
        cwd=HOUSE,
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = [line for line in run.stdout.splitlines() if ": error: " in line]
    assert all(line.startswith(str(folder)) for line in found), run.stdout
    return sorted({Path(line.partition(":")[0]).stem.removesuffix(f"_{own}") for line in found})


@pytest.mark.matrix
@pytest.mark.processes  # the type checker
def test_every_misspelt_field_is_a_type_error_and_the_right_ones_are_not(tmp_path: Path) -> None:
    wrong = [FILE.replace(right, mistake) for right, mistake in MISTAKES.items()]
    assert FILE not in wrong
    names = [f"record{number}" for number in range(1, len(wrong) + 1)]
    assert complaints(tmp_path, [FILE, *wrong]) == names
