"""Plans whose activations find no room on the hosts are none."""

import re
from dataclasses import replace
from json import dumps
from pathlib import Path

import numpy as np
import pytest

from penstock.cluster.presets import GIBI
from penstock.core.kernel import compile_small_work
from penstock.estimate.price import Estimate, estimate_step
from penstock.planner.advice import advise
from penstock.planner.candidates import Candidates
from penstock.planner.problem import problem_from
from penstock.planner.processes import PlanProcesses
from penstock.planner.search import SearchResult, search_plans
from penstock.planner.simulations import Simulations
from penstock.planner.words import lacking_words
from planner.problems import candidates_of, row, tight
from profiling.made_up import profile

pytestmark = pytest.mark.long

LONG = row(tokens=65536, batch_tokens=16 * 65536, shard="full", rows=1, vocabulary="no")
ALONE = {"mesh": "pipeline=1", "rows": 1, "schedule": "1f1b"}
COPIED = LONG | {"mesh": "tensor=1,sequence=1,pipeline=2"}


def _hosts_of(found: Candidates, gibi: int) -> Candidates:
    machine = replace(found.problem.cluster.machine, memory=gibi * GIBI)
    cluster = replace(found.problem.cluster, machine=machine)
    return replace(found, problem=replace(found.problem, cluster=cluster))


def _search(found: Candidates) -> SearchResult:
    simulations = Simulations(PlanProcesses(found.problem))
    return search_plans(found, 1, 60, lambda count, best: None, simulations)


def test_no_plan_has_less_on_its_hosts_than_bounds_say() -> None:
    found = candidates_of(problem_from(COPIED | {"offload": "all"}))
    numbers = np.random.default_rng(7).permutation(len(found))[:40].tolist()
    with compile_small_work():
        each = [(found.host[at], estimate_step(found.layout(at)).host) for at in numbers]
    assert all(bound <= host for bound, host in each)
    ratios = [bound / host for bound, host in each if bound]
    assert len(ratios) > 10
    assert np.median(ratios) > 0.3


@pytest.mark.matrix
def test_small_hosts_leave_copies_out() -> None:
    found = tight(candidates_of(problem_from(COPIED)), 20)
    large, small = (_search(_hosts_of(found, gibi)) for gibi in (16_384, 200))
    assert large.plans[0].layout.offload == "all"
    assert small.plans[0].layout.offload == "none"
    assert small.plans[0].seconds >= large.plans[0].seconds
    answer = advise(small)
    (larger,) = (each for each in answer.relaxed if each.name == "host")
    assert re.match(r"hosts with \d+ GiB would take", larger.text)
    assert larger.gain > 0.2
    full = replace(small.plans[0], host=400 * GIBI)
    assert lacking_words(full) == "220.0 GiB of each host"


def test_a_plan_that_copies_nothing_is_one_without_copies() -> None:
    """Alone, a device goes backward as soon as it went forward: nothing has time for the host."""
    for given, kept in (({}, "none"), ({"offload": "all"}, "all")):
        found = candidates_of(problem_from(row(**ALONE, **given)))
        offload = [group.variant.offload for group in found.groups]
        number = int(np.flatnonzero(found.group == offload.index("all"))[0])
        simulations = Simulations(PlanProcesses(found.problem))
        (outcome,) = simulations.begin(found, [number], [np.inf]).outcomes()
        (priced,) = simulations.estimates([found.layout(number)])
        for each in (outcome, priced):
            assert isinstance(each, Estimate)
            assert (each.host, each.layout.offload) == (0, kept)
            assert each == estimate_step(each.layout)


def test_ranks_that_compute_on_the_host_leave_nothing_there(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_text(dumps(profile()))
    sizes = row(model="tiny", tokens=512, batch_tokens=2048, profile=str(path))
    for given, kept in (({}, {"none"}), ({"offload": "all"}, {"all"})):
        found = candidates_of(problem_from(sizes | given))
        assert {group.variant.offload for group in found.groups} == kept
