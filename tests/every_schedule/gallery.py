"""The gallery: every schedule drawn at four devices, all on one time axis.

`python tests/every_schedule/gallery.py` writes the page and its pictures anew.
"""

from functools import cache
from pathlib import Path

from every_schedule.samples import command, sample_of
from penstock.draw import svg
from penstock.schedules import registry
from penstock.sim import simulate
from penstock.sim.timeline import Timeline

FOLDER = Path(__file__).parents[2] / "docs"
PAGE, PICTURES = FOLDER / "gallery.md", FOLDER / "pictures/gallery"

HEAD = """\
# Gallery

Every schedule at 4 devices, on one time axis, at equal times F = I = W = 1 of one microbatch on one
device. Below each device stands its memory, on one scale too. Where a schedule needs more than 8
microbatches, or fewer, its step is longer or shorter for that reason: the numbers are in its
headline. `penstock show NAME ... --svg FILE` draws any other size.
"""


@cache
def timelines() -> dict[str, Timeline]:
    """The step of every schedule."""
    return {name: simulate(sample_of(spec)) for name, spec in registry().items()}


def picture(name: str) -> str:
    """One schedule on the axis of all."""
    return svg.render([timelines()[name]], among=list(timelines().values()))


def page() -> str:
    """The page with a heading and a picture for each."""
    return HEAD + "".join(
        f"\n## [{name}](schedules/{name}.md)\n\n{spec.title}: `penstock show {command(spec)}`\n\n"
        f"![{name}](pictures/gallery/{name}.svg)\n"
        for name, spec in registry().items()
    )


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for old in PICTURES.glob("*.svg"):
        old.unlink()
    for known in registry():
        (PICTURES / f"{known}.svg").write_text(picture(known))
    PAGE.write_text(page())
