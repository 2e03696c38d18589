"""The table of recorded cases in the page of `penstock best`.

`python tests/search/best_table.py` works it out anew.
"""

import os
import re
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

from penstock.cli.best import Costs, Size, _wanted
from penstock.cost.model import UnitCost
from penstock.draw.words import number, percent
from penstock.schedules import build, registry
from penstock.search.best.best import SEARCHED, RankedEntry, Ranking, best
from penstock.sim import simulate

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/best.md"
_ROW = re.compile(r"^\| `penstock best (.*?)` \|(.*)\|$", re.MULTILINE)


def rows() -> list[tuple[str, list[str]]]:
    """Command and cells of each row of the table."""
    found = _ROW.findall(PAGE.read_text())
    return [(command, [cell.strip() for cell in cells.split("|")]) for command, cells in found]


def ranked(command: str) -> Ranking:
    """The ranking that a command prints, with a time that decides nothing."""
    words = command.split()
    flags = dict(zip(words[::2], words[1::2]))
    os.chdir(ROOT)
    slices = int(flags.get("-k", "1"))
    size = Size(int(flags["-p"]), int(flags["-m"]), slices=slices)
    costs = Costs(layers=flags["--layers"], limit=flags["--limit"], hop=flags.get("--hop", "0"))
    return best(replace(_wanted(size, costs), slices=slices, seconds=10_000.0))


def searched(ranking: Ranking) -> RankedEntry:
    return next(entry for entry in ranking.entries if entry.label.startswith(SEARCHED))


def registered(ranking: Ranking) -> RankedEntry:
    """The fastest of the others."""
    return next(entry for entry in ranking.entries if not entry.label.startswith(SEARCHED))


def cutting(command: str) -> Fraction:
    """The makespan of the fastest registered schedule that cuts the layers itself."""
    words = command.split()
    flags = dict(zip(words[::2], words[1::2]))
    costs = {"hop": Fraction(flags.get("--hop", "0"))}
    asked = {"layers": flags["--layers"], "limit": flags["--limit"]}
    found = [
        build(
            spec.name,
            devices=int(flags["-p"]),
            microbatches=int(flags["-m"]),
            chunks=chunks,
            options=asked,
            prices=costs,
        )
        for spec, chunks in product(registry().values(), (1, 2, 3))
        if {*asked} <= {option.name for option in spec.options}
    ]
    assert found
    return min(simulate(schedule, UnitCost(**costs)).makespan for schedule in found)


def cells(ranking: Ranking) -> list[str]:
    """The fastest registered schedule, the searched one, what is gained, and the bound."""
    other, mine = registered(ranking), searched(ranking)
    gain, distance = other.time / mine.time - 1, mine.time / ranking.bound - 1
    rival = f"{number(other.time)} {other.label}"
    return [rival, number(mine.time), percent(gain), number(ranking.bound), percent(distance)]


def rewritten(page: str) -> str:
    """The page with all cases worked out."""
    return _ROW.sub(
        lambda row: f"| `penstock best {row[1]}` | {' | '.join(cells(ranked(row[1])))} |", page
    )


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
