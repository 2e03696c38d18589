"""What cannot be combined, as a table of docs/reference/combinations.md, made by trying.

`python scripts/write_combinations.py` writes it anew; it needs torch, as runs are refused by what
runs them. No process is started.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.errors import PenstockError
from penstock.run.program.unsupported import why_not
from penstock.schedules import Spec, registry
from penstock.transform import CHANGES, combine
from penstock.verify.cases import smallest, trials_by_name
from penstock.verify.variants import VARIANTS, Variant
from penstock.verify.verifier import refuse_unrunnable

PAGE = Path(__file__).parents[1] / "docs/reference/combinations.md"
_TABLE = re.compile(r"(?<=<!-- refused -->\n).*?(?=<!-- end -->)", re.DOTALL)
_LEFT_OUT = re.compile(r"^note: .*?: (?:left out|not run), ")

Refusals = dict[tuple[str, str], list[str]]
"""Schedules by what they are not combined with, and the reason."""


def refusals() -> Refusals:
    """Everything that a registered schedule refuses, each at the size that is verified."""
    found: Refusals = {}
    for spec in registry().values():
        for what, reason in _refused(spec):
            found.setdefault((what, reason.replace(spec.name, "it")), []).append(spec.name)
    return found


def _refused(spec: Spec) -> Iterator[tuple[str, str]]:
    for change in CHANGES:
        if reason := _with_change(spec, change):
            yield f"`--with {change}`", reason
    for variant in VARIANTS:
        if variant.halved and (reason := _on_ranks(spec, variant)):
            yield variant.name, reason


def _with_change(spec: Spec, change: str) -> str:
    try:
        return why_not(combine(spec.build(smallest(spec)), [change]))
    except PenstockError as refusal:
        return refusal.message


def _on_ranks(spec: Spec, variant: Variant) -> str:
    """Why a run with several ranks for a device, or with replicas, is refused."""
    try:
        trials, notes = trials_by_name(spec, [variant])
        refuse_unrunnable(trials)
    except PenstockError as refusal:
        return refusal.message
    return "" if trials else _LEFT_OUT.sub("", notes[-1])


def table(found: Refusals) -> str:
    rows = [(what, ", ".join(map(_code, names)), reason) for (what, reason), names in found.items()]
    return "".join(map(_line, [("with", "schedules", "reason"), ("---",) * 3, *sorted(rows)]))


def _code(name: str) -> str:
    return f"`{name}`"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def rewritten(page: str, found: Refusals) -> str:
    """The page with this table."""
    return _TABLE.sub(lambda _: table(found), page)


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(), refusals()))
