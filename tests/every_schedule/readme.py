"""The table of schedules and the picture in the README, made from the registry.

`python tests/every_schedule/readme.py` writes both anew.
"""

import re
from pathlib import Path

from penstock.draw import svg
from penstock.schedules import Spec, build, find, registry
from penstock.sim import simulate

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PICTURE = ROOT / "docs/pictures/compare.svg"
COMPARED = ("1f1b", "seq1f1b", "zb-h1")

_TABLE = re.compile(r"(?<=<!-- schedules -->\n).*?(?=<!-- end -->)", re.DOTALL)


def rewritten(page: str) -> str:
    """The page with the table of what is registered now."""
    head = ["schedule", "makespan", "peak on device r", "takes", "paper"]
    rows = [head, ["---"] * len(head), *(_row(spec) for spec in registry().values())]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return _TABLE.sub(lambda _: table, page)


def _row(spec: Spec) -> list[str]:
    link = f"[{spec.name}](docs/schedules/{spec.name}.md): {spec.title}"
    flags = ["`-v`"] * (spec.chunks is None) + ["`-k`"] * spec.sliced
    flags += [f"`-o {option.name}`" for option in spec.options]
    time = _claim(spec, "makespan") or f"span {_claim(spec, 'span')}"
    return [link, time, _claim(spec, "peak"), " ".join(flags), spec.paper]


def _claim(spec: Spec, quantity: str) -> str:
    """The first formula that a schedule claims for a quantity, marked where it has conditions."""
    claims = [claim for claim in spec.claims if claim.quantity == quantity]
    if not claims:
        return ""
    least = "at most " if claims[0].bound else ""
    return least + claims[0].formula + (" \\*" if claims[0].condition else "")


def picture() -> str:
    """The compared schedules on one time axis, at four devices, eight microbatches, four slices."""
    return svg.render(
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
