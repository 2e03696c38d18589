"""Compares two opinions on mutants, and counts how they agree."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.check import check

from .board import Play
from .explorer import explore
from .mutants import MUTATIONS, Mutant, mutants
from .small_world import schedule_of

COLUMNS = ("mutants", "equal", "legal", "refused", "named")


@dataclass
class Tally:
    """Counts for each kind of mutation, and a sentence for every disagreement."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    disagreements: list[str] = field(default_factory=list)

    def add(self, label: str, play: Play, mutant: Mutant) -> None:
        """Ask both about one mutant."""
        mutated = replace(play, lanes=mutant.lanes)
        verdict = explore(mutated)
        report = check(schedule_of(mutated))
        named = any(mutant.touched.intersection(finding.ops) for finding in report.findings)
        legal = verdict.fault == "ok"
        self.faults[verdict.fault] += 1
        outcomes = {
            "mutants": True,
            "equal": report.proven == legal,
            "legal": legal,
            "refused": not legal and not report.proven,
            "named": not legal and named,
        }
        self.counts.update((mutant.kind, column) for column in COLUMNS if outcomes[column])
        if not outcomes["equal"] or not (legal or named):
            found = [finding.message for finding in report.findings]
            self.disagreements.append(
                f"{label}, {mutant.kind} {mutant.site}: explorer {verdict}, check {found}"
            )

    def total(self, column: str) -> int:
        return sum(count for (_, name), count in self.counts.items() if name == column)


def tally(plays: Mapping[str, Play], each: int) -> Tally:
    """`each` mutants of every kind of every play."""
    result = Tally()
    for label, play in plays.items():
        for mutant in mutants(play.lanes, each, label):
            result.add(label, play, mutant)
    return result


def table(counts: Mapping[tuple[str, str], int]) -> Iterable[str]:
    """The counts as lines of text, with a total."""
    yield f"{'mutation':<22}" + "".join(f"{column:>10}" for column in COLUMNS)
    kinds = [mutation.kind for mutation in MUTATIONS]
    for kind in kinds:
        yield f"{kind:<22}" + "".join(f"{counts.get((kind, c), 0):>10,}" for c in COLUMNS)
    totals = [sum(counts.get((kind, column), 0) for kind in kinds) for column in COLUMNS]
    yield f"{'total':<22}" + "".join(f"{total:>10,}" for total in totals)
