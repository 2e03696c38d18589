"""What stands in front of the confirmation of early updates must be such that it can be dropped."""

from collections.abc import Iterator

import numpy as np

from penstock.check.complete import SPELLED_OUT
from penstock.check.finding import Finding
from penstock.core.begun import begun_rows, not_to_begin
from penstock.core.schedule import Schedule


def ops_to_confirm_before(schedule: Schedule) -> Iterator[Finding]:
    """Ops that could not be run again if an early update turns out to be wrong."""
    table = schedule.table
    if "C" not in table.kinds:
        return
    for row in np.flatnonzero(not_to_begin(schedule, begun_rows(schedule)))[:SPELLED_OUT].tolist():
        op, device = table.op(row), int(table.device[row])
        lane = slice(row, int(table.lane_start[table.lane[row] + 1]))
        check = next(each for each in table.ops(lane.start, lane.stop) if each.kind == "C")
        yield Finding(
            "confirmed",
            (op, check),
            device,
            f"{op} on device {device} is before {check}, and could not be run again if that "
            "finds an update to be wrong",
            f"move {check} before {op}",
        )
