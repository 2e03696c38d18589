"""The small world at full length: `python -m tests.trust.report [MUTANTS] [NAME ...]`.

MUTANTS is how many mutants of each kind are made of each play (default 20); names are of registered
schedules (default all). Prints one line per schedule as it goes, then the table of counts, and
every disagreement. Exits with 1 if there is one.
"""

import sys
from collections import Counter
from time import perf_counter

from penstock.schedules import registry

from .small_world import plays
from .tally import table, tally


def main(arguments: list[str]) -> int:
    each = int(arguments[0]) if arguments else 20
    names = arguments[1:] or list(registry())
    counts: Counter[tuple[str, str]] = Counter()
    faults: Counter[str] = Counter()
    disagreements: list[str] = []
    for name in names:
        start = perf_counter()
        result = tally(plays(name), each)
        counts += result.counts
        faults += result.faults
        disagreements += result.disagreements
        print(
            f"{name:<16}{len(plays(name)):>6} plays {result.total('mutants'):>9,} mutants"
            f" {len(result.disagreements):>6} disagreements {perf_counter() - start:>8.1f} s",
            flush=True,
        )
    print("\nexplorer:", ", ".join(f"{fault} {count:,}" for fault, count in faults.most_common()))
    print(*table(counts), *disagreements, sep="\n")
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
