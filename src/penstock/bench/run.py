"""`penstock bench run`: what the runtime costs, against PyTorch's and against the simulation.

All ranks are processes of this machine. Results are told as they come and returned together, each
beside what the project promises; ratios are of one run, so that they do not depend on the machine.
"""

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata, resources
from json import dumps
from platform import python_version
from typing import TYPE_CHECKING, Any

from penstock.errors import ShapeError
from penstock.schedules import Case, Spec, build, registry

if TYPE_CHECKING:
    from penstock.bench.measure.host import HostTime
    from penstock.run.launch.worker_pool import Crew

BenchSettings = Mapping[str, Any]
Result = dict[str, Any]
Say = Callable[[str], None]


def read_bench_settings() -> BenchSettings:
    """The sizes and schedules that are measured (run.toml)."""
    return tomllib.loads(resources.files(__package__).joinpath("run.toml").read_text("utf-8"))


def machine() -> Result:
    return {"cpus": cores(), "python": python_version(), "torch": metadata.version("torch")}


def measure_host(settings: BenchSettings, say: Say) -> Result:
    """CPU beside the work, the slowest rank of each side."""
    from penstock.bench.measure import host
    from penstock.run.launch.worker_pool import Crew

    ranks, microbatches, steps = (settings[key] for key in ("ranks", "microbatches", "steps"))
    schedule = build(settings["schedule"], devices=ranks, microbatches=microbatches)
    with Crew(ranks) as crew:
        ours = _slowest(crew.run(host.host_time_of_ours, schedule, steps))
        rows = []
        for rival in settings["rivals"]:
            theirs = _slowest(crew.run(host.theirs, rival["name"], microbatches, steps))
            rows.append({**rival, "microseconds": theirs, "ratio": ours / theirs})
            say(dumps({"host": rows[-1], "ours": ours}))
    return {
        "schedule": schedule.name,
        **{key: settings[key] for key in ("ranks", "microbatches", "steps")},
        "microseconds": ours,
        "rivals": rows,
    }


def _slowest(parts: "Sequence[HostTime]") -> float:
    return max(part.microseconds for part in parts)


def measure_emulated(settings: BenchSettings, say: Say) -> Result:
    """Makespans of waiting ops for every schedule that the executor can run."""
    from penstock.errors import RunError
    from penstock.lower import lower
    from penstock.run.launch.worker_pool import Crew
    from penstock.run.program.unsupported import refuse_unsupported

    rows = []
    with Crew(settings["ranks"]) as crew:
        for spec in registry().values():
            case = accepted_case(spec, settings)
            schedule = spec.build(case)
            row: Result = {"schedule": spec.name, "size": str(case), "reason": None}
            try:
                refuse_unsupported(lower(schedule))
                row |= _emulated(crew, schedule, settings)
            except RunError as error:
                row["reason"] = error.message
            rows.append(row)
            say(dumps({"emulate": row}))
        rival = _emulated_rival(crew, settings)
        say(dumps({"emulate": rival}))
    worst = max(abs(row["error"]) for row in rows if row["reason"] is None)
    return {"target": settings["target"], "worst": worst, "schedules": rows, "rival": rival}


def accepted_case(spec: Spec, settings: BenchSettings) -> Case:
    """The first size of the settings that a schedule accepts."""
    slices = settings["slices"] if spec.sliced else [None]
    for m in settings["microbatches"]:
        for k in slices:
            for chunks in (None, 1, 2):
                try:
                    return spec.case(settings["ranks"], m, chunks, k, {})
                except ShapeError:
                    continue
    raise ShapeError(
        f"{spec.name} accepts none of the sizes for {settings['ranks']} ranks",
        hint="add sizes to the settings of the bench",
    )


def _emulated(crew: "Crew", schedule: Any, settings: BenchSettings) -> Result:
    """The best of some runs: what the runtime needs when nothing else disturbs it."""
    from penstock.bench.measure.emulate import emulate

    runs = [
        emulate(crew, schedule, shortest=settings["shortest"], spin=spin(settings["ranks"]))
        for _ in range(settings["repeats"])
    ]
    best = min(runs, key=lambda run: run.measured)
    return {"simulated": best.simulated, "measured": best.measured, "error": best.error}


def _emulated_rival(crew: "Crew", settings: BenchSettings) -> Result:
    """PyTorch's schedule and ours with the same waits for the same work."""
    from penstock.bench.measure.emulate import emulate, seconds_between
    from penstock.bench.measure.waiting_module import waiting_step
    from penstock.sim import simulate

    rival, ranks = settings["rival"], settings["ranks"]
    size = {"devices": ranks, "microbatches": rival["microbatches"]}
    same = build(rival["same"], **size)
    faster = build(rival["faster"], **size, slices=rival["slices"])
    pause = spin(ranks)
    ours = min(
        (emulate(crew, faster, shortest=rival["shortest"], spin=pause) for _ in range(2)),
        key=lambda run: run.measured,
    )
    job = (rival["name"], rival["microbatches"], ours.unit, pause)
    theirs = min(seconds_between(crew.run(waiting_step, *job)) for _ in range(2))
    promised = simulate(same).makespan / simulate(faster).makespan
    return {
        "rival": rival["name"],
        "schedule": rival["faster"],
        "slices": rival["slices"],
        "rival_seconds": theirs,
        "seconds": ours.measured,
        "promised": float(promised),
        "measured": theirs / ours.measured,
    }


def spin(ranks: int) -> float:
    """Seconds at the end of a wait that a rank may spin: none where ranks share cores."""
    return 0.0002 if cores() > ranks else 0.0


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
