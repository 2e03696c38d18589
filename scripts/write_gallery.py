"""The gallery: every schedule drawn at four devices, all on one time axis.

`python scripts/write_gallery.py` writes the page and its pictures anew.
"""

from fractions import Fraction
from functools import cache
from pathlib import Path

from penstock.cost.model import UnitCost
from penstock.draw.svg.picture import render
from penstock.schedules import registry
from penstock.sim import simulate
from penstock.sim.timeline import Timeline
from sample_requests import command, sample_of

FOLDER = Path(__file__).parents[1] / "docs"
PAGE, PICTURES = FOLDER / "gallery.md", FOLDER / "pictures/gallery"

HEAD = """\
# Gallery

Every schedule at 4 devices, on one time axis, at equal times F = I = W = 1 of one microbatch on one
device; copies and vocabulary passes, which are free elsewhere, take the times in the command. Below
each device is its memory, on one scale too. Where a schedule needs more than 8
microbatches, or fewer, its step is longer or shorter for that reason: the numbers are in its
headline. `penstock show NAME ... --svg FILE` draws any other size.
"""


TIMES = {
    **dict.fromkeys("OLST", Fraction(1, 2)),
    **dict.fromkeys("ED", Fraction(1, 4)),
}
"""What takes no time unless asked for would be invisible."""


@cache
def timelines() -> dict[str, Timeline]:
    """The step of every schedule."""
    cost = UnitCost(times=TIMES)
    return {name: simulate(sample_of(spec), cost) for name, spec in registry().items()}


def times(name: str) -> str:
    """The times that a picture has beside the usual ones, as they are typed."""
    kinds = timelines()[name].schedule.table.kinds
    found = [f"{kind}={time}" for kind, time in TIMES.items() if kind in kinds]
    return f" --times {','.join(found)}" if found else ""


def picture(name: str) -> str:
    """One schedule on the axis of all."""
    return render([timelines()[name]], among=list(timelines().values()))


def page() -> str:
    """The page with a heading and a picture for each."""
    return HEAD + "".join(
        f"\n## [{name}](schedules/{name}.md)\n\n{spec.title}: "
        f"`penstock show {command(spec)}{times(name)}`\n\n![{name}](pictures/gallery/{name}.svg)\n"
        for name, spec in registry().items()
    )


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for old in PICTURES.glob("*.svg"):
        old.unlink()
    for known in registry():
        (PICTURES / f"{known}.svg").write_text(picture(known))
    PAGE.write_text(page())
