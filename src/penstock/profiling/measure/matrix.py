"""Cells of a matrix, each in a process of its own."""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from json import dumps
from pathlib import Path

from penstock.bench.measure.step_clock import unless_memory_ends
from penstock.errors import PenstockError
from penstock.model.kernels.choice import PLAIN_KERNELS, fuses
from penstock.profiling.case import three_stages
from penstock.profiling.matrix import MatrixCell, keep_rows, known_rows, row_of
from penstock.profiling.measure.steps import dtype_of, steps_of_schedule
from penstock.profiling.measure.timing import Rounds, one_thread
from penstock.profiling.modules import MeasuredRow
from penstock.run.execute.spans import clock_of
from penstock.run.launch.worker_pool import Crew
from penstock.run.process.rendezvous import Connection
from penstock.run.step.build import torch_device
from penstock.transform import combine

UNSUPPORTED = "unsupported"


def matrix_rows(
    cells: Sequence[MatrixCell], wanted: str, steps: int, first: int, out: Path | None
) -> Iterator[MeasuredRow]:
    """Every cell; what the file has already is taken from there."""
    known = known_rows(out) if out else []
    if out:
        keep_rows(out, known)
    for cell in cells:
        found = row_of(known, cell)
        if found is not None:
            yield dict(found)
            continue
        row = cell.key | _in_process(cell, wanted, steps, first)
        if out:
            with out.open("a") as file:
                file.write(dumps(row) + "\n")
        yield row


def _in_process(cell: MatrixCell, wanted: str, steps: int, first: int) -> MeasuredRow:
    """One cell in a process that has done nothing else; one that is ended says so."""
    with Crew(1) as crew:
        try:
            return crew.run(run_cell, cell, wanted, steps, first)[0]
        except PenstockError as error:
            if "killed by signal" not in error.message:
                raise
            return {"status": "ended by the system"}


def run_cell(
    connection: Connection, cell: MatrixCell, wanted: str, steps: int, first: int
) -> MeasuredRow:
    """Measure a cell, or say why it cannot be."""
    device = torch_device(wanted, connection.place)
    one_thread(device)
    case = cell.switched
    if "plain-kernels" in cell.switches:
        if not fuses(device, dtype_of(case)):
            return {"status": UNSUPPORTED, "reason": f"on {device.type} no kernels are fused"}
        os.environ[PLAIN_KERNELS] = "1"
    schedule = combine(three_stages(case.slices), cell.changes)
    often = Rounds(1, steps, first)
    measure = partial(steps_of_schedule, case, schedule, device, often, clock_of(device))
    found = unless_memory_ends(measure, device)
    if found is None:
        return {"status": "out of memory"}
    return {
        "status": "measured",
        "step": found.record(case.tokens),
        "memory": {
            name: size for name, size in found.memory.record().items() if name != "over_time"
        },
    }
