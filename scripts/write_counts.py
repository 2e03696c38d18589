"""The counts in the README, made from what they count.

A count stands between `<!-- count NAME -->` and `<!-- end -->`. `python scripts/write_counts.py`
writes all of them anew; it needs torch, because runs of the verifier are among them.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from penstock.bench.core import read_core_settings
from penstock.schedules import build, registry
from penstock.verify.cases import trials_by_name
from penstock.verify.compare import TOLERANCE

README = Path(__file__).parents[1] / "README.md"

_COUNT = re.compile(r"(<!-- count ([a-z0-9 ]+) -->).*?(<!-- end -->)", re.DOTALL)


def counts() -> dict[str, str]:
    """The text of each count by its name."""
    runs = sum(len(trials_by_name(spec)[0]) for spec in registry().values())
    return {
        "schedules": str(len(registry())),
        "verified runs": str(runs),
        "measured ops": f"{_measured_ops() / 1e6:.1f} million",
        **{f"error in {t}": _power(limit.gradient) for t, limit in TOLERANCE["cpu"].items()},
    }


def _measured_ops() -> int:
    """Ops of the schedule that `penstock bench core` simulates."""
    size = dict(read_core_settings()["large"])
    return len(build(size.pop("schedule"), **size).table)


def _power(limit: float) -> str:
    """As people write it: 1e-5, where Python has 1e-05."""
    return f"{limit:.0e}".replace("e-0", "e-")


def rewritten(page: str, found: Mapping[str, str]) -> str:
    """The page with these counts."""
    return _COUNT.sub(lambda place: f"{place[1]}{found[place[2]]}{place[3]}", page)


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text(), counts()))
