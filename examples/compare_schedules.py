"""Which schedule is faster, and what does it hold in memory? Writes compared.html."""

from fractions import Fraction

import penstock

NAMES = ("1f1b", "zb-h1", "seq1f1b")
COST = penstock.UnitCost(hop=Fraction(1, 10))


def main() -> None:
    timelines: list[penstock.Timeline] = []
    for name in NAMES:
        slices = 4 if penstock.find(name).sliced else None
        schedule = penstock.build(name, devices=4, microbatches=8, slices=slices)
        report = penstock.check(schedule)
        program = penstock.lower(schedule)
        timelines.append(penstock.simulate(schedule, COST))
        makespan, peak = float(timelines[-1].makespan), float(max(timelines[-1].peak))
        print(
            f"{name:8} {report.ops} ops, {len(program.channels)} channels, "
            f"makespan {makespan:.2f}, peak {peak:g}"
        )
    penstock.draw(*timelines).save("compared.html")


if __name__ == "__main__":
    main()
