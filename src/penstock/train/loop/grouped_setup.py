"""What `data.policy = "flex"` needs beside the plan of the start: costs of groups, and orders."""

from dataclasses import replace
from pathlib import Path

from penstock.arch.config import ModelConfig
from penstock.cluster.presets import CLUSTERS
from penstock.cluster.profile_file import read_machine
from penstock.errors import ShapeError
from penstock.estimate.group_cost import GroupSetting, group_cost, group_cost_of_profile
from penstock.plan.sequence_groups.cost import GroupCost
from penstock.plan.sequence_groups.planner import GroupPlanner
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


def group_planner(settings: Settings, model: ModelConfig) -> GroupPlanner:
    """Who plans the groups of each batch; `model` has the heads of a tensor rank."""
    cell, grouping = settings.mesh.shape.cell.ulysses, settings.data.groups
    cost = cost_of_groups(settings, model)
    if grouping == "static":
        size = _given_size(settings, cost)
        cost = replace(cost, exchange={size: cost.exchange[size]})
    return GroupPlanner(cell, cost, grouping)


def cost_of_groups(settings: Settings, model: ModelConfig) -> GroupCost:
    """From the profile that the settings name, or from closed forms. A place that exchanges is a
    whole ring where there are rings: its ranks share what it has."""
    cell, ring = settings.mesh.shape.cell.ulysses, settings.mesh.ring
    setting = GroupSetting(
        model,
        replace(CLUSTERS[TYPICAL_CLUSTER], gpus=max(cell, CLUSTERS[TYPICAL_CLUSTER].gpus)),
        cell,
        settings.batch.length,
        capacity=rank_tokens(settings) * ring,
    )
    if not settings.data.profile:
        return group_cost(setting).shared_by(ring)
    machine = read_machine(Path(settings.data.profile))
    return group_cost_of_profile(replace(setting, cluster=machine.cluster), machine).shared_by(ring)


def _given_size(settings: Settings, cost: GroupCost) -> int:
    """Ranks of each group where all have one size: those that are given, or the fewest that hold
    the longest sequence."""
    longest, given = settings.batch.length, settings.data.group_ranks
    if given and given not in cost.exchange:
        raise ShapeError(
            f"data.group_ranks is {given}, but groups may have "
            f"{', '.join(map(str, sorted(cost.exchange)))} ranks",
            hint="give one of these: powers of two with a query head for each rank, or all ranks",
        )
    least = cost.smallest_degree(longest)
    if given and given * cost.capacity < longest:
        raise ShapeError(
            f"data.group_ranks is {given}, and so many ranks hold {given * cost.capacity} tokens, "
            f"but batch.length is {longest}",
            hint=f"give {least} or more, or raise data.rank_tokens",
        )
    return given or least
