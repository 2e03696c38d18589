"""Estimates beside measured steps: whether a profile says what other steps take."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from penstock.bench.measure.step_clock import unless_memory_ends
from penstock.cluster.profile_file import read_profile
from penstock.estimate.price import Estimate
from penstock.profiling.case import ProfileCase, profiled_case
from penstock.profiling.check_cases import CheckCase
from penstock.profiling.measure.steps import MeasuredSteps, measure_steps, profiled_seconds
from penstock.profiling.measure.timing import one_thread
from penstock.run.launch.worker_pool import Crew
from penstock.run.process.rendezvous import Connection
from penstock.run.step.build import torch_device
from penstock.schedules import build

Row = dict[str, Any]
LONGEST = 3600.0
"""Seconds that a case may take."""


def checked_rows(
    profile: Path, cases: Iterable[CheckCase], wanted: str, steps: int, first: int
) -> Iterator[Row]:
    """Each case estimated with the profile, and measured. Before and after each the profiled step
    is measured again: a machine that others use is not always as fast as it was."""
    record = read_profile(profile)
    profiled, then = profiled_case(record), float(record["step"]["seconds"])
    with Crew(1, limit=LONGEST) as crew:
        again = partial(crew.run, profiled_again, profiled, wanted, steps, first)
        now = again()[0] / then
        for case in cases:
            found = crew.run(measure_case, case, wanted, steps, first)[0]
            before, now = now, again()[0] / then
            yield checked(case, case.estimated(str(profile)), found, (before + now) / 2)


def checked(case: CheckCase, said: Estimate, found: MeasuredSteps | None, slower: float) -> Row:
    """One case; a step that the memory does not suffice for is told as such."""
    memory = said.memory[0]
    size = memory.total - memory.context - memory.fragmentation
    row = {**case.named, "estimated_seconds": said.seconds, "estimated_bytes": size}
    if found is None:
        return row | {"status": "out of memory"}
    return row | {
        "status": "measured",
        "measured_seconds": found.seconds,
        "time_error": said.seconds / found.seconds - 1,
        "drift": slower - 1,
        "steady_error": said.seconds * slower / found.seconds - 1,
        "measured_bytes": found.memory.allocated,
        "memory_error": size / found.memory.allocated - 1,
    }


def profiled_again(
    connection: Connection, case: ProfileCase, wanted: str, steps: int, first: int
) -> float:
    """Seconds of the profiled step."""
    device = torch_device(wanted, connection.place)
    one_thread(device)
    return profiled_seconds(case, device, steps, first)


def measure_case(
    connection: Connection, case: CheckCase, wanted: str, steps: int, first: int
) -> MeasuredSteps | None:
    """Steps of a case; None where the memory does not suffice."""
    device = torch_device(wanted, connection.place)
    one_thread(device)
    return unless_memory_ends(partial(_measured, case, device, steps, first), device)


def _measured(case: CheckCase, device: torch.device, steps: int, first: int) -> MeasuredSteps:
    slices = case.case.slices if case.case.slices > 1 else None
    schedule = build(case.schedule, devices=1, microbatches=case.microbatches, slices=slices)
    return measure_steps(case.case, schedule, device, steps, first)
