"""What is said about plans is true of all that was bounded, and of what was simulated."""

from dataclasses import replace

import numpy as np
import pytest

from penstock.arch.layer_split import read_counts, written_counts
from penstock.planner.advice import MOST_MEMORY, Plans, advise, needs, state_bytes
from penstock.planner.candidates import all_candidates
from penstock.planner.problem import problem_from
from penstock.planner.search import least_seconds, search_plans
from penstock.planner.words import option_words, why
from planner.problems import every, row, with_memory

pytestmark = pytest.mark.long

FEW = {"tensor": 1, "sequence": 1}


@pytest.fixture(scope="module")
def answer() -> Plans:
    """Few candidates, all of which may be simulated."""
    sizes = row(mesh=FEW, rows=1, schedule="1f1b", vocabulary=False, offload="none")
    candidates = all_candidates(problem_from(sizes))
    return advise(search_plans(candidates, 3, 500, lambda count, best: None))


def test_a_plan_says_how_gpus_and_batch_are_divided(answer: Plans) -> None:
    for plan in answer.plans:
        mesh, microbatches = plan.layout.mesh, plan.layout.microbatches
        said = why(answer, plan)[0]
        assert said.startswith(f"8 GPUs are {mesh.replicas} replica")
        assert ("1 microbatch of" in said) == (microbatches == 1)
        assert "1 replicas" not in said


def test_one_gpu_has_no_replicas_and_no_pipeline_to_fill() -> None:
    sizes = row(cluster="h100:1", batch_tokens=2 * 8192, rows=1, schedule="seq1f1b", slices=4)
    candidates = all_candidates(problem_from(sizes))
    answer = advise(search_plans(candidates, 1, 500, lambda count, best: None))
    first, *rest = why(answer, answer.plans[0])
    assert first == "1 GPU computes 2 microbatches of 1 x 8,192 tokens"
    (told,) = [each for each in rest if each.startswith("4 slices of a sequence")]
    assert told.endswith("are computed one after another, so that less is held at once")


def test_other_sizes_of_an_axis_are_compared(answer: Plans) -> None:
    told = [each for each in why(answer, answer.plans[0]) if each.startswith("with pipeline=")]
    assert told
    for each in told:
        assert "the best that was simulated is 1f1b" in each or "none can take less than" in each


def test_the_least_of_a_kind_is_the_smallest_of_its_bounds() -> None:
    candidates = every()
    kinds = [candidates.kind(number) for number in range(0, len(candidates), 500)]
    room = candidates.problem.cluster.gpu.memory
    for kind in {*kinds}:
        bounds = [
            candidates.seconds[number]
            for number in range(len(candidates))
            if candidates.kind(number) == kind and candidates.bytes[number] <= room
        ]
        assert least_seconds(candidates, kind) == min(bounds, default=np.inf)


def test_split_layers_are_told_as_the_flag_takes_them(answer: Plans) -> None:
    uneven = [plan.layout for plan in answer.plans if plan.layout.layers]
    assert uneven
    for layout in uneven:
        written = written_counts(layout.layers)
        assert read_counts(written) == layout.layers
        assert f"layers={written}" in option_words(layout)


def test_a_faster_kernel_is_told(answer: Plans) -> None:
    """Estimates take flash2 unless they are told; on an H100 cuDNN is faster."""
    (found,) = [each for each in answer.relaxed if each.name == "attention"]
    assert found.text.startswith("--attention cudnn would take ")
    assert found.gain > 0


def test_more_memory_is_an_answer_where_gpus_have_it() -> None:
    tight = replace(every(), problem=with_memory(every().problem, 12))
    found = advise(search_plans(tight, 1, 30, lambda count, best: None))
    told = [each for each in found.relaxed if each.name == "memory"]
    for each in told:
        assert float(each.text.split()[2]) <= MOST_MEMORY * 12 + 1


def test_what_the_model_needs_at_least_is_below_what_any_plan_holds() -> None:
    problem = every().problem
    assert state_bytes(problem) == 18 * problem.model.parameters
    none = replace(every(), problem=with_memory(problem, 2))
    leanest = advise(search_plans(none, 1, 30, lambda count, best: None)).nearest
    assert leanest is not None
    assert state_bytes(problem) / problem.cluster.gpus < needs(leanest)
