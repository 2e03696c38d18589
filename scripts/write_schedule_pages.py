"""Pages of schedules: what they show and list is what the records and the commands say.

In a page under docs/schedules, a block marked `console` is a shell session of one command, and the
sections Needs, Options and Claims repeat the record. `python scripts/write_schedule_pages.py`
writes both anew.
"""

import os
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from penstock.cli.main import main
from penstock.schedules import Claim, Spec, registry

FOLDER = Path(__file__).parents[1] / "docs/schedules"
COLUMNS = "100"
LEGEND = """\
p devices, m microbatches, v stages per device, k slices per microbatch; r is the device, from 0.
F, I, W and B = I + W are the times of one microbatch on one device. Memory counts the activations
of one microbatch on one device (act) as 1; stash is the part of them that is kept for W, 1 by
default.

"""

_SESSION = re.compile(r"^```console\n\$ penstock (.*)\n(?:.*\n)*?```$", re.MULTILINE)
_SECTION = re.compile(r"^## (Needs|Options|Claims)\n(?:(?!## ).*\n)*", re.MULTILINE)


def rewritten(page: str, spec: Spec) -> str:
    """The page as it should be."""
    page = _SESSION.sub(lambda found: _session(found[1]), page)
    return _SECTION.sub(lambda found: f"## {found[1]}\n\n{_section(found[1], spec)}\n", page)


def _session(arguments: str) -> str:
    answer = StringIO()
    with patch.dict(os.environ, {"COLUMNS": COLUMNS}), redirect_stdout(answer):
        main(arguments.split())
    lines = "".join(f"{line.rstrip()}\n" for line in answer.getvalue().splitlines())
    return f"```console\n$ penstock {arguments}\n{lines}```"


def _section(title: str, spec: Spec) -> str:
    if title == "Needs":
        return _needs(spec)
    if title == "Options":
        lines = [f"- `{option.name}`: {option.text}." for option in spec.options]
        return "".join(f"{line}\n" for line in lines) or "None.\n"
    rows = ["quantity | formula | holds for | source", "--- | --- | --- | ---"]
    rows += map(_claim, spec.claims)
    return LEGEND + "".join(f"| {row} |\n" for row in rows) + f"\n{_code(spec)}\n"


def _code(spec: Spec) -> str:
    """Where to read on."""
    path = f"src/{spec.generate.__module__.replace('.', '/')}.py"
    return f"Code: [{Path(path).name}](../../{path})."


def _needs(spec: Spec) -> str:
    several = f"any number of {spec.counted} per device (`-v`, {spec.default_chunks} if left out)"
    stages = {None: several, 1: "one stage per device", 2: "two stages per device"}[spec.chunks]
    slices = "any number of slices (`-k`, 1 if left out)" if spec.sliced else spec.sequences
    conditions = [f"{stages[0].upper()}{stages[1:]}; {slices}", *(n.text for n in spec.needs)]
    return "".join(f"- {condition}.\n" for condition in conditions)


def _claim(claim: Claim) -> str:
    quantity = claim.quantity.replace("_", " ")
    formula = f"at most {claim.formula}" if claim.bound else claim.formula
    return f"{quantity} | {formula} | {claim.condition or 'always'} | {claim.source}"


if __name__ == "__main__":
    for name, record in registry().items():
        path = FOLDER / f"{name}.md"
        path.write_text(rewritten(path.read_text(), record))
