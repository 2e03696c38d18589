"""The choice itself: the planner's answer for this machine, as keys of a configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from penstock.cluster.profile_file import machine_of, read_profile
from penstock.draw.words import count_of
from penstock.errors import PenstockError, ShapeError
from penstock.estimate.price import Estimate
from penstock.planner.advice import Plans, advise, lacks
from penstock.planner.candidates import all_candidates
from penstock.planner.configuration import configuration
from penstock.planner.nothing_found import nothing_found
from penstock.planner.search import search_plans
from penstock.planner.words import option_words, plan_mesh, schedule_words, why
from penstock.run.process.machine import PROCESS_BYTES, this_machine
from penstock.train.auto_plan.chosen_plan import CHOSEN_KEYS, ChosenPlan
from penstock.train.auto_plan.request import PlanRequest

SHOWN_KINDS, MOST_SIMULATED = 3, 200
"""Kinds of plans that are compared, and how many are simulated at most: a few seconds."""


def choose_plan(request: PlanRequest, profile: Path, because: str = "") -> ChosenPlan:
    """The fastest plan that fits into what each rank has, with times of a profile."""
    record = read_profile(profile)
    machine_of(record, profile.stem)  # refused before its parts are looked at
    room = _room(request, int(record["machine"]["memory_bytes"]))
    sizes = {"memory_bytes": room, "host_memory_bytes": _host(request), "ranks": request.ranks}
    record["machine"] = {**record["machine"], **sizes}
    problem = request.problem(machine_of(record, profile.stem))
    every = all_candidates(problem)
    if not len(every):
        raise _in_words_of_keys(nothing_found(problem))
    found = search_plans(every, SHOWN_KINDS, MOST_SIMULATED, lambda count, best: None)
    answer = advise(found)
    if not answer.plans:
        raise _nothing_fits(answer)
    best = answer.plans[0]
    tables = configuration(best.layout)
    return ChosenPlan(
        asked=request.record(),
        machine=machine_facts(record),
        keys={
            section: {key: tables[section][key] for key in keys}
            for section, keys in CHOSEN_KEYS.items()
        },
        words=_words(answer, best),
        why=[_shape(best), *(each.replace("GPU", "rank") for each in why(answer, best)[1:])],
        profile=str(profile),
        seconds=best.seconds,
        memory=[each._asdict() for each in best.memory],
        because=because,
    )


def _room(request: PlanRequest, measured: int) -> int:
    """Bytes that each rank may take: of the host what is free now, of a GPU what it has."""
    if request.device == "cuda":
        return measured // -(-request.ranks // max(1, torch.cuda.device_count()))
    free = this_machine().free or measured
    return max(1, free // request.ranks - PROCESS_BYTES)


def _host(request: PlanRequest) -> int:
    """Bytes of the host beside what ranks are given: for ranks on the host there are none apart."""
    return this_machine().free or 0 if request.device == "cuda" else 0


def machine_facts(profile: Mapping[str, Any]) -> dict[str, Any]:
    """What a machine is known by."""
    made = profile["made"]
    return {"device": made.get("device"), "cores": made.get("cores")}


def _words(answer: Plans, best: Estimate) -> str:
    layout, found = best.layout, answer.found
    extras = option_words(layout)
    return (
        f"{schedule_words(layout)} on {plan_mesh(layout)}"
        f"{'' if extras == '-' else f', {extras}'}: {best.seconds:.3g} s for a step, the best of "
        f"{len(found.candidates):,} candidates of which {found.simulated:,} were simulated"
    )


def _shape(best: Estimate) -> str:
    layout = best.layout
    replicas, ranks = layout.mesh.replicas, layout.cluster.gpus
    return (
        f"{count_of(replicas, 'replica')} of {count_of(ranks // replicas, 'rank')}, each with "
        f"{layout.microbatches} x {layout.rows} sequences of {layout.tokens:,} tokens"
    )


def _nothing_fits(answer: Plans) -> ShapeError:
    room, leanest = answer.found.candidates.problem.cluster.gpu.memory, answer.nearest
    needed = "" if leanest is None else f"; the leanest lacks {lacks(leanest) / 2**30:.2f} GiB"
    return ShapeError(
        f"no plan fits into the {room / 2**30:.2f} GiB that each rank has{needed}",
        hint="take more ranks or shorter sequences, or leave more of the plan open",
    )


def _in_words_of_keys(error: PenstockError) -> ShapeError:
    """A refusal of the planner in the words of a configuration."""
    words = {"batch_tokens": "the batch", "GPUs": "ranks", "--rows": "batch.rows"}
    words |= {"--shard": "mesh.shard", "--mesh": "mesh", "--option": "pipeline.options"}
    words |= {"--": "pipeline."}
    message, hint = error.message, error.hint
    for flag, key in words.items():
        message, hint = message.replace(flag, key), hint.replace(flag, key)
    return ShapeError(f"plan.auto: {message}", hint=hint)
