"""Golden lanes: the first case of every record as text, so that no order changes unnoticed.

`python scripts/write_golden.py` writes them anew; look at the difference before you keep it.
"""

from pathlib import Path

from penstock.files.text import dumps
from penstock.schedules import Spec, registry

FOLDER = Path(__file__).parents[1] / "tests/golden"


def golden(spec: Spec) -> str:
    """The text lanes of the record's first case."""
    case = spec.cases[0]
    return dumps(spec.build(spec.case(case.p, case.m, case.v, case.k, case.options)))


if __name__ == "__main__":
    for name, record in registry().items():
        (FOLDER / f"{name}.txt").write_text(golden(record))
