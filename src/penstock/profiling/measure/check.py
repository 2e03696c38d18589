"""Estimates beside measured steps: whether a profile says what other steps take."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch

from penstock.bench.measure.step_clock import unless_memory_ends
from penstock.cluster.profile_file import read_profile
from penstock.errors import FormatError, ShapeError, shown
from penstock.estimate.price import Estimate
from penstock.profiling.case import ProfileCase, case_of_steps
from penstock.profiling.check_cases import CheckCase
from penstock.profiling.measure.neighbours import Neighbours
from penstock.profiling.measure.run import LONGEST_PROFILE, busy_ranks
from penstock.profiling.measure.steps import MeasuredSteps, profiled_seconds, steps_of_schedule
from penstock.profiling.measure.timing import Rounds, one_thread
from penstock.profiling.modules import MeasuredRow
from penstock.run.execute.spans import clock_of
from penstock.run.launch.worker_pool import Crew
from penstock.run.process.rendezvous import Connection
from penstock.run.step.build import torch_device
from penstock.schedules import build

MeasuredDevices = Sequence[MeasuredSteps]
"""Steps as each device saw them."""
PROFILED_AGAIN = Rounds(1, 3, 1)
"""How often the profiled step is measured again."""


def checked_rows(
    profile: Path, cases: Iterable[CheckCase], often: Rounds, devices: int = 1
) -> Iterator[MeasuredRow]:
    """Each case estimated with the profile, and measured on so many devices. Before and after each
    round all ranks measure the profiled step again: a machine that others use is not always as
    fast as it was."""
    record = read_profile(profile)
    machine, profiled = record["machine"], case_of_steps(record)
    then, wanted = float(record["step"]["seconds"]), str(machine["device"])
    ranks = busy_ranks(wanted, int(machine["ranks"]))
    often, profiled_often = often._replace(ranks=ranks), PROFILED_AGAIN._replace(ranks=ranks)
    with (
        Neighbours(ranks, LONGEST_PROFILE) as neighbours,
        Crew(devices, limit=LONGEST_PROFILE) as crew,
    ):

        def again() -> float:
            return fmean(neighbours.run(profiled_again, profiled, wanted, profiled_often))

        together, before = crew if devices > 1 else neighbours, again()
        for case in cases:
            rounds = list[CheckedRound]()
            for _ in range(often.rounds):
                found = of_devices(together.run(measure_case, case, wanted, often), case)
                after = again()
                rounds.append(CheckedRound(found, fmean((before, after)) / then))
                before = after
            yield checked_row(case, case.estimated(str(profile)), usual_round(rounds))


class CheckedRound(NamedTuple):
    """A case measured once."""

    devices: MeasuredDevices | None
    """None where the memory does not suffice."""
    slower: float
    """Seconds of the profiled step around it, as a multiple of those in the profile."""

    @property
    def seconds(self) -> float:
        """Of a step on all of its devices."""
        return max(each.seconds for each in self.devices or ())


def of_devices(found: Sequence[MeasuredSteps | None], case: CheckCase) -> MeasuredDevices | None:
    """Steps of each device of a case; None where the memory of one does not suffice."""
    done = [each for each in found[: case.devices] if each is not None]
    return done if len(done) == case.devices else None


def usual_round(rounds: Sequence[CheckedRound]) -> CheckedRound:
    """One whose memory did not suffice, or the median, the speed of the machine apart."""
    failed = next((each for each in rounds if each.devices is None), None)
    if failed:
        return failed
    ordered = sorted(rounds, key=lambda each: each.seconds / each.slower)
    return ordered[(len(ordered) - 1) // 2]


def refuse_unmeasured(record: Mapping[str, Any], devices: int = 1) -> None:
    """Refuse a profile without the step that is measured again, of an unknown device, or of fewer
    ranks than are wanted."""
    seconds, machine = record["step"]["seconds"], record["machine"]
    if not (isinstance(seconds, float) and seconds > 0 and machine["device"] in ("cpu", "cuda")):
        raise FormatError(
            f"the profiled step took {shown(seconds)} s on {shown(machine['device'])}",
            hint="give a file that `penstock profile --out` has written",
        )
    if not (isinstance(machine["ranks"], int) and 1 <= devices <= machine["ranks"]):
        raise ShapeError(
            f"{devices} devices, but the profile is of {shown(machine['ranks'])} ranks",
            hint=f"profile again with --ranks {devices}",
        )


def checked_row(case: CheckCase, said: Estimate, found: CheckedRound) -> MeasuredRow:
    """One case, with the memory of the device that is furthest off; a step that the memory does not
    suffice for is told as such."""
    sizes = [each.total - each.context - each.fragmentation for each in said.memory]
    row = {**case.named, "estimated_seconds": said.seconds}
    if found.devices is None:
        return row | {"status": "out of memory", "estimated_bytes": max(sizes)}
    pairs = [(size, each.memory.allocated) for size, each in zip(sizes, found.devices)]
    size, allocated = max(pairs, key=lambda pair: abs(pair[0] / pair[1] - 1))
    seconds, slower = found.seconds, found.slower
    return row | {
        "status": "measured",
        "measured_seconds": seconds,
        "time_error": said.seconds / seconds - 1,
        "drift": slower - 1,
        "steady_error": said.seconds * slower / seconds - 1,
        "estimated_bytes": size,
        "measured_bytes": allocated,
        "memory_error": size / allocated - 1,
    }


def profiled_again(connection: Connection, case: ProfileCase, wanted: str, often: Rounds) -> float:
    """Seconds of the profiled step, from fewer of them than count of a case."""
    device = torch_device(wanted, connection.place)
    one_thread(device)
    return profiled_seconds(case, device, often)


def measure_case(
    connection: Connection, case: CheckCase, wanted: str, often: Rounds
) -> MeasuredSteps | None:
    """Steps of a case; None where the memory does not suffice."""
    device = torch_device(wanted, connection.place)
    one_thread(device)
    return unless_memory_ends(partial(_measured, case, device, often), device)


def _measured(case: CheckCase, device: torch.device, often: Rounds) -> MeasuredSteps:
    slices = case.case.slices if case.case.slices > 1 else None
    count = case.microbatches
    schedule = build(case.schedule, devices=case.devices, microbatches=count, slices=slices)
    # Waiting for others is no CPU time of a thread, and takes its part of a step.
    clock = clock_of(device) if case.devices > 1 else None
    return steps_of_schedule(case.case, schedule, device, often, clock)
