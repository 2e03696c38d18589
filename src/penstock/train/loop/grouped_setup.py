"""What `data.policy = "flex"` needs beside the plan of the start: costs of groups, and orders."""

from dataclasses import replace
from pathlib import Path

from penstock.arch.config import ModelConfig
from penstock.cluster.presets import CLUSTERS
from penstock.cluster.profile_file import read_machine
from penstock.estimate.group_cost import GroupSetting, group_cost, group_cost_of_profile
from penstock.plan.sequence_groups.cost import GroupCost
from penstock.train.config.settings import Settings

TYPICAL_CLUSTER = "h200"
"""Whose closed forms say what groups cost where there is no profile."""


def rank_tokens(settings: Settings) -> int:
    """Tokens of a microbatch that one rank holds at most: as many as of a packed sequence, unless
    something else is said."""
    return settings.data.rank_tokens or -(-settings.batch.length // settings.mesh.sequence)


def largest_microbatch(settings: Settings) -> int:
    """Most tokens of a microbatch, all groups together where there are groups."""
    if settings.data.policy != "flex":
        return settings.batch.length
    return max(settings.batch.length, rank_tokens(settings) * settings.mesh.sequence)


def cost_of_groups(settings: Settings, model: ModelConfig) -> GroupCost:
    """From the profile that the settings name, or from closed forms; `model` has the heads of a
    tensor rank."""
    cell = settings.mesh.sequence
    setting = GroupSetting(
        model,
        replace(CLUSTERS[TYPICAL_CLUSTER], gpus=max(cell, CLUSTERS[TYPICAL_CLUSTER].gpus)),
        cell,
        settings.batch.length,
        capacity=rank_tokens(settings),
    )
    if not settings.data.profile:
        return group_cost(setting)
    machine = read_machine(Path(settings.data.profile))
    return group_cost_of_profile(replace(setting, cluster=machine.cluster), machine)
