"""One profile: kernels, copies and steps of a model on this machine, as one record."""

import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from penstock import __version__
from penstock.bench.measure.step_clock import give_back
from penstock.bench.run import Say
from penstock.cluster.cluster import Cluster
from penstock.cluster.gpu import Gpu
from penstock.cluster.measured import END_RATES, FACTORS, FIXED_PARTS
from penstock.cluster.presets import CLUSTERS
from penstock.cluster.profile_file import FORMAT, VERSION, machine_of
from penstock.estimate.measured_times import ProfiledTimes, activations_by_part
from penstock.model.kernels.choice import fuses
from penstock.profiling.case import ProfileCase
from penstock.profiling.in_step import StepOps, factors_of, op_rows, phases_of
from penstock.profiling.measure.copies import collective_rows, copy_rows
from penstock.profiling.measure.found import MeasuredRound, RankFound, usual_rows, usual_steps
from penstock.profiling.measure.kernels import KernelBench
from penstock.profiling.measure.neighbours import Neighbours
from penstock.profiling.measure.steps import MeasuredSteps, dtype_of, profile_steps
from penstock.profiling.measure.timing import Rounds, one_thread
from penstock.profiling.modules import MeasuredRow, module_rows
from penstock.profiling.sizes import FEWEST_TOKENS, attention_sizes, product_sizes, token_counts
from penstock.profiling.utilised import step_utilisation
from penstock.run.launch.worker_pool import Crew
from penstock.run.process.environment import RankPlace
from penstock.run.process.machine import this_machine
from penstock.run.process.rendezvous import Connection
from penstock.run.step.build import torch_device

FoundProfile = dict[str, Any]
SHORTER = 4
"""How many times fewer tokens a second step has than the profiled one."""
LONGEST_PROFILE = 3600.0
"""Seconds that a profile may take."""


def profile_machine(
    case: ProfileCase, wanted: str, ranks: int, often: Rounds, say: Say
) -> FoundProfile:
    """Measure all that a profile has: in a process of its own, which has the settings of memory
    that ranks of a run have, on a host with as many beside it; collectives among all ranks."""
    say(f"{case.name}: steps of {case.tokens:,} tokens in {case.slices} slices, then kernels")
    beside = busy_ranks(wanted, ranks)
    often = often._replace(ranks=beside)
    with Neighbours(beside, LONGEST_PROFILE) as neighbours:
        record = profile_record(case, neighbours.run(measure_rank, case, wanted, often))
    record["machine"]["ranks"] = ranks
    record["made"]["command"] = sys.argv[1:]
    if ranks > 1:
        say(f"collectives of {ranks} ranks")
        record["collectives"] = _collectives(ranks, wanted)
    return record


def busy_ranks(wanted: str, ranks: int) -> int:
    """Processes that compute at the same time: ranks of a host share what each GPU has alone."""
    return ranks if torch_device(wanted, RankPlace()).type == "cpu" else 1


def measure_rank(
    connection: Connection, case: ProfileCase, wanted: str, often: Rounds
) -> RankFound:
    """What one of the ranks measures that compute at the same time."""
    device = torch_device(wanted, connection.place)
    one_thread(device)
    fused = fuses(device, dtype_of(case))
    cases, rounds = stepped_cases(case, device.type, often.ranks), list[MeasuredRound]()
    for _ in range(often.rounds):
        steps = [profile_steps(each, device, often) for each in cases]
        rounds.append(MeasuredRound(steps, _kernel_rows(case, device, fused)))
        give_back(device)
    machine = machine_row(device, case.precision)
    return RankFound(made_on(device), machine, fused, rounds, [*copy_rows(device)])


def profile_record(case: ProfileCase, ranks: Sequence[RankFound]) -> FoundProfile:
    """What follows from what all of these measured."""
    one = ranks[0]
    cases = stepped_cases(case, one.device.type, len(ranks))
    measured = {each: usual_steps(ranks, at) for at, each in enumerate(cases)}
    record: FoundProfile = {"format": FORMAT, "version": VERSION, "made": one.made}
    record["case"] = case.record() | {"step_layers": cases[0].sizes.layers, "fused": one.fused}
    record["machine"] = one.machine
    found = measured[cases[0]]
    record["step"] = found.record(case.tokens)
    record["phases"] = phases_of(found.ops, found.seconds, found.clearing)
    record["ops"] = op_rows(case, found.ops)
    record["other_steps"] = [_other_row(each, measured[each]) for each in cases[1:]]
    record["memory"] = found.memory.record()
    record |= {name: usual_rows(ranks, name) for name in one.rounds[0].kernels}
    record["copies"] = [*one.copies]
    record["collectives"] = []
    _shares(record)
    return record | _factors(record, measured)


def stepped_cases(case: ProfileCase, device: str, ranks: int) -> list[ProfileCase]:
    """The profiled step first, then those that are run besides."""
    step = case.in_pipeline_of(ranks)
    return [step, *other_steps(step, device)]


def other_steps(case: ProfileCase, device: str) -> list[ProfileCase]:
    """The same without slices; and with a quarter of the tokens, where the host computes: there a
    kernel takes some time however few tokens there are."""
    found = [replace(case, slices=1)] if case.slices > 1 else []
    few = case.tokens // SHORTER
    short = device == "cpu" and few >= FEWEST_TOKENS * case.slices
    return [*found, replace(case, tokens=few)] if short else found


def _other_row(case: ProfileCase, found: MeasuredSteps) -> MeasuredRow:
    """Another step that factors follow from."""
    return {
        "tokens": case.tokens,
        "lengths": list(case.lengths),
        "seconds": found.seconds,
        "clearing_seconds": found.clearing,
        "ops": op_rows(case, found.ops),
    }


def usual_precision(wanted: str) -> str:
    """What is computed with where nobody says it."""
    return "bf16" if torch_device(wanted, RankPlace()).type == "cuda" else "fp32"


def made_on(device: torch.device) -> MeasuredRow:
    """What a profile depends on beside its case."""
    cuda = device.type == "cuda"
    return {
        "penstock": __version__,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "system": platform.platform(),
        "device": torch.cuda.get_device_name(device) if cuda else processor(),
        "cores": this_machine().cores,
        "threads": torch.get_num_threads(),
    }


def processor() -> str:
    """The name of the host's processor, or at least its kind."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def machine_row(device: torch.device, precision: str) -> MeasuredRow:
    """What the device is; peaks where its name is known."""
    known = _data_sheet(device)
    cuda = device.type == "cuda"
    properties = torch.cuda.get_device_properties(device) if cuda else None
    return {
        "device": device.type,
        "ranks": 1,
        "memory_bytes": properties.total_memory if properties else this_machine().free or 1,
        "host_memory_bytes": (this_machine().free or 0) if properties else 0,
        "cores": properties.multi_processor_count if properties else 1,
        "peak_flops": known.peak.get(precision) if known else None,
        "peak_memory_rate": known.memory_rate if known else None,
    }


def _data_sheet(device: torch.device) -> Gpu | None:
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device).lower()
    named: list[tuple[str, Cluster]] = sorted(CLUSTERS.items(), reverse=True)
    return next((found.gpu for key, found in named if key.split("-")[0] in name), None)


def _kernel_rows(case: ProfileCase, device: torch.device, fused: bool) -> FoundProfile:
    """Kernels one by one."""
    bench, times = KernelBench(case, device), _times(case, fused)
    rows = [bench.product(*each) for each in product_sizes(case, times)]
    attended = [row for size in attention_sizes(case) for row in bench.attention(size)]
    pieces = {times.head_piece(tokens).m for tokens in token_counts(case)}
    moving = [*bench.moving(), *map(bench.loss, sorted(pieces))]
    return {"products": rows, "attention": attended, "kernels": moving}


def _times(case: ProfileCase, fused: bool) -> ProfiledTimes:
    """The kernels of a layer, by their sizes alone."""
    gpu = next(iter(CLUSTERS.values())).gpu
    return ProfiledTimes(case.model, case.model, gpu, 1.0, "flash2", fused)


def _collectives(ranks: int, wanted: str) -> Sequence[MeasuredRow]:
    back_end = "gloo" if wanted == "cpu" else ""
    with Crew(ranks, back_end=back_end) as crew:
        return crew.run(collective_rows, wanted)[0]


def _shares(record: FoundProfile) -> None:
    """Shares of the peaks of the data sheet, where there is one."""
    machine = record["machine"]
    for name in ("products", "attention"):
        for row in record[name]:
            peak = machine["peak_flops"]
            row["share_of_peak"] = row["flops_per_second"] / peak if peak else None
    for row in record["kernels"]:
        peak = machine["peak_memory_rate"]
        row["share_of_peak"] = row["bytes_per_second"] / peak if peak else None


def _factors(record: FoundProfile, measured: Mapping[ProfileCase, MeasuredSteps]) -> FoundProfile:
    """What steps make of kernels, and what follows from both."""
    empty = {
        "in_step": dict.fromkeys(FACTORS, 1.0),
        "fixed_seconds": dict.fromkeys(FIXED_PARTS, 0.0),
        "whole_over_slices": dict.fromkeys(FIXED_PARTS, 1.0),
    }
    empty["rates"] = dict.fromkeys(END_RATES, 1.0)
    gpu = machine_of(record | empty | {"between_ops_seconds": 0.0}, "here").cluster.gpu
    fused, case = record["case"]["fused"], next(iter(measured))
    times = ProfiledTimes(case.model, case.model, gpu, 1.0, "flash2", fused)
    steps = [
        StepOps(each, times, found.ops, found.seconds, found.clearing)
        for each, found in measured.items()
    ]
    on_host = record["machine"]["device"] == "cpu"
    factors = factors_of(steps, constant=on_host)
    return {
        "activations": activations_by_part(times) if on_host else {},
        "in_step": factors.in_step,
        "fixed_seconds": factors.fixed,
        "whole_over_slices": factors.whole,
        "rates": factors.rates,
        "between_ops_seconds": factors.between,
        "modules": module_rows(steps[0], factors),
        "utilisation": step_utilisation(case, steps[0].seconds, record["machine"]["peak_flops"]),
    }
