"""Trials of models with experts: those of any schedule and variant, with another model."""

from dataclasses import replace

from penstock.arch.mixture import ExpertMixture
from penstock.schedules import registry
from penstock.verify.cases import trials_by_name
from penstock.verify.variants import VARIANTS, Trial
from verify.small_sizes import SMALL

MIXTURES = (
    ExpertMixture(5, 2, balance=0.5),
    ExpertMixture(6, 3, renormalised=False, balance=0.5, family="qwen3_moe"),
)
"""An auxiliary loss that weighs much, so that a mistake in it is no rounding."""
BY_NAME = {variant.name: variant for variant in VARIANTS}


def with_experts(trial: Trial, mixture: ExpertMixture = MIXTURES[0]) -> Trial:
    """The same trial of a model with experts."""
    model = replace(trial.work.model, mixture=mixture, ffn=10)
    return replace(trial, work=replace(trial.work, model=model))


def expert_trial(schedule: str, variant: str, mixture: ExpertMixture = MIXTURES[0]) -> Trial:
    """One schedule under one variant."""
    (trial,), _ = trials_by_name(registry()[schedule], [BY_NAME[variant]], SMALL)
    return with_experts(trial, mixture)


def sharing_experts(trial: Trial) -> Trial:
    """The same where the replicas share the experts."""
    return replace(trial, cell=replace(trial.cell, experts=trial.replicas))
