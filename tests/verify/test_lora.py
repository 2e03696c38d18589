"""Adapters in every kind of schedule and mesh, against one process with W + s B A."""

from dataclasses import replace

import pytest

from penstock.arch.cell_shape import CellShape
from penstock.arch.lora import Lora
from penstock.schedules import registry
from penstock.verify.cases import trials_by_name
from penstock.verify.changes import ragged_lengths, with_few_buffers, with_recompute, with_slices
from penstock.verify.variants import Variant
from penstock.verify.verifier import Verifier
from verify.small_sizes import SMALL

pytestmark = pytest.mark.torch

ALL, SOME = Lora(3, 2.0), Lora(2, targets=("v_proj", "o_proj", "up_proj"))

HEAD = Lora(3, 2.0, targets=("q_proj", "down_proj", "lm_head"))

VARIANTS = (
    Variant("biased", "", tied=True, biased=True, lora=SOME),
    Variant("float32", "", dtype="float32", lora=ALL),
    Variant("ragged", "", cut=ragged_lengths, transform=with_slices, lora=SOME),
    Variant("recompute", "", transform=with_recompute, lora=ALL),
    Variant("tensor", "", cell=CellShape(tensor=2), biased=True, tied=True, lora=ALL),
    Variant("replicated norms", "", cell=CellShape(tensor=2, norms="replicated"), lora=SOME),
    Variant("ulysses", "", cell=CellShape(ulysses=2), lora=ALL),
    Variant("shard", "", replicas=2, shard="optimizer", tied=True, lora=ALL),
    Variant("head", "", lora=HEAD),
    Variant("head of a cell", "", cell=CellShape(tensor=2), lora=HEAD),
    Variant("head of ranges", "", replicas=2, shard="full", transform=with_few_buffers, lora=HEAD),
    Variant("full", "", replicas=2, shard="full", tied=True, transform=with_few_buffers, lora=ALL),
)
NAMES = ("zb-h1", "seq1f1b", "interleaved", "dualpipev", "stp", "vocab-1f1b", "helixpipe")
"""Split backwards, slices, several stages, braided pairs, vocabulary shards, attention apart."""
FEW = {
    "seq1f1b": {"tensor", "full", "head", "head of a cell"},
    "vocab-1f1b": {"shard", "biased"},
    "helixpipe": {"tensor"},
}
"""What is run every day."""


def _equal(verifier: Verifier, name: str, variants: list[Variant]) -> None:
    trials, notes = trials_by_name(registry()[name], variants, SMALL)
    rows = [verifier.row(trial) for trial in trials]
    assert [row.explanation for row in rows] == [""] * len(rows), notes
    assert len(trials) + len(notes) == len(variants)
    assert trials


@pytest.mark.parametrize("name", FEW)
def test_adapters_are_equal_to_one_process(verifier: Verifier, name: str) -> None:
    _equal(verifier, name, [each for each in VARIANTS if each.name in FEW[name]])


@pytest.mark.matrix
@pytest.mark.parametrize("name", NAMES)
def test_adapters_are_equal_to_one_process_everywhere(verifier: Verifier, name: str) -> None:
    _equal(verifier, name, [*VARIANTS])


def test_a_wrong_scale_is_found(verifier: Verifier) -> None:
    """What the oracle merges follows from alpha: with another one nothing is equal."""
    trials, _ = trials_by_name(registry()["1f1b"], [VARIANTS[1]])
    (trial,) = trials
    model = replace(trial.work.model, lora=replace(ALL, alpha=2.1))
    right = verifier._answer(replace(trial, work=replace(trial.work, model=model)))
    found = verifier._answer(trial)
    assert abs(right.loss - found.loss) > 1e-6 * right.loss
