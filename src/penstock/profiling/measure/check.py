"""Estimates beside measured steps: whether a profile says what other steps take."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from penstock.bench.measure.step_clock import unless_memory_ends
from penstock.cluster.profile_file import read_profile
from penstock.errors import FormatError, shown
from penstock.estimate.price import Estimate
from penstock.profiling.case import ProfileCase, profiled_case
from penstock.profiling.check_cases import CheckCase
from penstock.profiling.measure.run import LONGEST_PROFILE, Rounds
from penstock.profiling.measure.steps import (
    MeasuredSteps,
    profiled_seconds,
    steps_of_schedule,
    usual_steps,
)
from penstock.profiling.measure.timing import one_thread, usual
from penstock.profiling.modules import MeasuredRow
from penstock.run.launch.worker_pool import Crew
from penstock.run.process.rendezvous import Connection
from penstock.run.step.build import torch_device
from penstock.schedules import build

PROFILED_AGAIN = Rounds(1, 2, 1)
"""How often the profiled step is measured again."""


def checked_rows(profile: Path, cases: Iterable[CheckCase], often: Rounds) -> Iterator[MeasuredRow]:
    """Each case estimated with the profile, and measured. Before each round the profiled step is
    measured again: a machine that others use is not always as fast as it was."""
    record = read_profile(profile)
    profiled, then = profiled_case(record), float(record["step"]["seconds"])
    wanted = str(record["machine"]["device"])
    device = torch.device(wanted)
    with Crew(1, limit=LONGEST_PROFILE) as crew:
        for case in cases:
            again, found = list[float](), list[MeasuredSteps | None]()
            for _ in range(often.rounds):
                again += crew.run(profiled_again, profiled, wanted)
                found += crew.run(measure_case, case, wanted, often)
            done = [each for each in found if each is not None]
            steps = usual_steps(done, device) if len(done) == len(found) else None
            said = case.estimated(str(profile))
            yield checked_row(case, said, steps, usual(again, device) / then)


def refuse_unmeasured(record: Mapping[str, Any]) -> None:
    """Refuse a profile without the step that is measured again, or of an unknown device."""
    seconds, device = record["step"]["seconds"], record["machine"]["device"]
    if not (isinstance(seconds, float) and seconds > 0 and device in ("cpu", "cuda")):
        raise FormatError(
            f"the profiled step took {shown(seconds)} s on {shown(device)}",
            hint="give a file that `penstock profile --out` has written",
        )


def checked_row(
    case: CheckCase, said: Estimate, found: MeasuredSteps | None, slower: float
) -> MeasuredRow:
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


def profiled_again(connection: Connection, case: ProfileCase, wanted: str) -> float:
    """Seconds of the profiled step, from fewer of them than count of a case."""
    device = torch_device(wanted, connection.place)
    one_thread(device)
    return profiled_seconds(case, device, PROFILED_AGAIN.steps, PROFILED_AGAIN.first)


def measure_case(
    connection: Connection, case: CheckCase, wanted: str, often: Rounds
) -> MeasuredSteps | None:
    """Steps of a case; None where the memory does not suffice."""
    device = torch_device(wanted, connection.place)
    one_thread(device)
    return unless_memory_ends(partial(_measured, case, device, often), device)


def _measured(case: CheckCase, device: torch.device, often: Rounds) -> MeasuredSteps:
    slices = case.case.slices if case.case.slices > 1 else None
    schedule = build(case.schedule, devices=1, microbatches=case.microbatches, slices=slices)
    return steps_of_schedule(case.case, schedule, device, often.steps, often.first)
