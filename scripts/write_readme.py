"""The table of schedules and the picture in the README, made from the registry.

`python scripts/write_readme.py` writes both anew.
"""

import re
from pathlib import Path

from penstock.draw.svg.picture import render
from penstock.lower import lower
from penstock.schedules import Spec, build, find, registry
from penstock.sim import simulate
from penstock.sim.timeline import Timeline
from sample_requests import sample, sample_of

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PICTURE = ROOT / "docs/pictures/compare.svg"
COMPARED = ("1f1b", "seq1f1b", "zb-h1")

_TABLE = re.compile(r"(?<=<!-- schedules -->\n).*?(?=<!-- end -->)", re.DOTALL)


def rewritten(page: str) -> str:
    """The page with the table of what is registered now."""
    head = ["schedule", "at", "bubble", "peak", "messages", "needs", "paper"]
    rows = [head, ["---"] * len(head), *(_row(spec) for spec in registry().values())]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return _TABLE.sub(lambda _: table, page)


def _row(spec: Spec) -> list[str]:
    case, schedule = sample(spec), sample_of(spec)
    timeline = simulate(schedule)
    size = f"m = {case.m}" + (f", k = {case.k}" if spec.sliced else "")
    return [
        f"[{spec.name}](docs/schedules/{spec.name}.md): {spec.title}",
        size,
        _bubble(timeline),
        f"{float(max(timeline.peak)):.3g}",
        str(len(lower(schedule).moves.reader)),
        "; ".join(need.text for need in spec.needs),
        spec.paper,
    ]


def _bubble(timeline: Timeline) -> str:
    """Of the step from its first op to its last; and of the longest device alone, where steps that
    overlap would idle less."""
    whole, alone = (f"{float(b):.1%}" for b in (timeline.bubble_makespan, timeline.bubble_span))
    return whole if whole == alone else f"{whole} ({alone})"


def picture() -> str:
    """The compared schedules on one time axis, at four devices, eight microbatches, four slices."""
    return render(
        [
            simulate(
                build(name, devices=4, microbatches=8, slices=4 if find(name).sliced else None)
            )
            for name in COMPARED
        ]
    )


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text()))
    PICTURE.write_text(picture())
