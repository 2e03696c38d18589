"""Shows a finding: the sentence, and the lanes with an arrow at the op to blame.

People find a misplaced op faster in a picture of its lane than in a sentence about it.
"""

from penstock.check.finding import Finding, Report
from penstock.core.ops import Op
from penstock.core.schedule import Schedule

REACH = 5
"""Ops shown on either side of the one that is pointed at."""


def explain(schedule: Schedule, report: Report) -> str:
    """Every finding with the lanes it speaks of."""
    return "\n\n".join(_explained(schedule, finding) for finding in report.findings)


def _explained(schedule: Schedule, finding: Finding) -> str:
    lanes = _lanes(schedule, finding.ops)
    return f"{finding}\n\n{lanes}" if lanes else str(finding)


def _lanes(schedule: Schedule, ops: tuple[Op, ...]) -> str:
    """Pieces of the lanes in which the ops stand; the first op is marked by an arrow."""
    wanted = set(ops)
    pieces: list[str] = []
    for device, stream, lane in schedule.table.lanes():
        places = [place for place, op in enumerate(lane) if op in wanted]
        if places:
            pieces.append(piece(f"{device} {stream}:", lane, places, ops[0]))
    return "\n".join(pieces)


def piece(label: str, lane: list[Op], places: list[int], blamed: Op) -> str:
    """One lane from just before the first marked op to just behind the last."""
    marked = [place for place in places if lane[place] == blamed] or places[:1]
    first, last = max(0, min(places) - REACH), min(len(lane), max(places) + REACH + 1)
    last = min(last, max(marked[0], min(places)) + 4 * REACH)
    text = f"{label} {'... ' if first else ''}"
    under = " " * len(text)
    for place in range(first, last):
        word = str(lane[place])
        mark = "^" if lane[place] == blamed else "-" if place in places else " "
        text += word + " "
        under += mark * len(word) + " "
    tail = "..." if last < len(lane) else ""
    return f"{text}{tail}".rstrip() + "\n" + under.rstrip()
