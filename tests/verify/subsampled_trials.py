"""Trials of models that leave out tokens: any schedule and variant, with brackets in the model."""

from dataclasses import replace

from penstock.arch.subsampling import Subsampling
from penstock.schedules import registry
from penstock.verify.cases import trials_by_name
from penstock.verify.variants import VARIANTS, Trial, Variant
from verify.small_sizes import SMALL

STRUCTURE = "T(T(T)T)T(T)T"
"""Nested brackets, and two beside each other; a schedule with more stages gets more layers."""
BY_NAME = {variant.name: variant for variant in VARIANTS}


def with_brackets(variant: Variant, structure: str = STRUCTURE, keep: float = 0.64) -> Variant:
    """The same with a model that leaves out tokens."""
    model = variant.scale.model
    subsampling = Subsampling(structure, keep)
    kept = replace(model, layers=subsampling.layers, subsampling=subsampling)
    return replace(variant, scale=replace(variant.scale, model=kept))


EVEN = "T(T(TTTT)T)T"
"""As many layers before each pair as after it: in a V both of its brackets are on one device."""


def subsampled_trial(schedule: str, variant: str, structure: str = STRUCTURE) -> Trial:
    """One schedule under one variant."""
    changed = with_brackets(BY_NAME[variant], structure)
    found, notes = trials_by_name(registry()[schedule], [changed], SMALL)
    assert found, notes
    return found[0]
