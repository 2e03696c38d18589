"""A small member of every family, under schedules that together have every kind of work."""

from functools import cache

import pytest

from loops import each, one_of
from penstock.arch.families import to_huggingface
from penstock.arch.presets import MODELS, model
from penstock.schedules import registry
from penstock.verify.cases import smallest, trials_by_name
from penstock.verify.covering import covering_schedules, features
from penstock.verify.members import small_member, variants_of_member
from penstock.verify.scale import CPU
from penstock.verify.variants import Trial
from penstock.verify.verifier import Verifier
from verify.small_sizes import SMALL

pytestmark = pytest.mark.torch

MEMBERS = (
    *("mistral-7b-v0.1", "gemma2-27b", "gemma3-12b", "phi-3-mini", "olmo2-7b"),
    *("mixtral-8x7b", "qwen3-30b-a3b", "tiny-fused", "subllm-1.3b"),
)
"""One of each family that has more than the usual trials have, and one whose layers differ."""
EACH = 1
"""Trials of each member in every run of the tests."""


@each("name", MODELS)
def test_a_member_is_of_the_family_and_tiny(name: str) -> None:
    member = small_member(model(name), CPU.model)
    assert member.parameters < 10_000 * member.layers
    assert to_huggingface(member)["model_type"] == to_huggingface(model(name))["model_type"]


def test_few_schedules_have_every_kind_of_work() -> None:
    chosen = covering_schedules(registry().values())
    assert len(chosen) < 10
    found = set[str]().union(*(features(spec.build(smallest(spec))) for spec in chosen))
    assert {*"FNRBIWEDST", "slices", "loans", "gangs", "pairs", "attention alone"} <= found


@cache
def trials_of(name: str) -> list[Trial]:
    specs = covering_schedules(registry().values())
    variants = variants_of_member(model(name), "cpu")
    return [trial for spec in specs for trial in trials_by_name(spec, variants, SMALL)[0]]


def chosen(name: str) -> list[Trial]:
    """Some trials, others for the next member."""
    trials, first = trials_of(name), MEMBERS.index(name)
    step = len(trials) // EACH
    return [trials[(7 * first + step * turn) % len(trials)] for turn in range(EACH)]


def _equal(verifier: Verifier, trials: list[Trial]) -> None:
    rows = [verifier.row(trial) for trial in trials]
    assert [row.explanation for row in rows] == [""] * len(rows)


@pytest.mark.parametrize("name", one_of(3, ((name,) for name in MEMBERS)))
def test_a_member_is_equal_to_one_process_in_some_trials(verifier: Verifier, name: str) -> None:
    _equal(verifier, chosen(name))


@pytest.mark.matrix
@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_is_equal_to_one_process_in_its_share_of_the_trials(
    verifier: Verifier, name: str
) -> None:
    """All members together have each trial once or more."""
    _equal(verifier, trials_of(name)[MEMBERS.index(name) :: len(MEMBERS)])


@pytest.mark.matrix
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_is_equal_to_one_process_in_every_trial(verifier: Verifier, name: str) -> None:
    _equal(verifier, trials_of(name))
