"""Costs of groups of ranks, from closed forms and from a profile (FlexSP, section 3)."""

from dataclasses import replace

import pytest

from penstock.arch.presets import MODELS
from penstock.cluster.presets import CLUSTERS
from penstock.cluster.profile_file import machine_of
from penstock.errors import PlanError
from penstock.estimate.group_cost import (
    GroupSetting,
    group_cost,
    group_cost_of_profile,
)
from penstock.estimate.price import estimate
from penstock.estimate.request import layout_from
from penstock.plan.sequence_groups.batch import adaptive_groups, flexible_groups
from profiling.made_up import FLOPS, profile

LLAMA = MODELS["llama3-8b"]
TWO_MACHINES = replace(CLUSTERS["h200"], gpus=16)
SETTING = GroupSetting(LLAMA, TWO_MACHINES, cell=16, longest=1 << 17, shard="full")


def test_a_profile_gives_the_flops_of_attention_over_its_rate() -> None:
    model = replace(MODELS["tiny"], element_bytes=4)
    machine = machine_of(profile(), "made up")
    setting = GroupSetting(model, machine.cluster, cell=2, longest=4096, precision="fp32")
    cost = group_cost_of_profile(setting, machine)
    assert cost.pair == pytest.approx(3 * model.layers * model.pair_flops / 2 / FLOPS, rel=1e-6)
    products = 6 * (model.layers * model.layer_weights + model.head_weights)
    assert cost.token > products / FLOPS


def _step(tokens: int, model: str = "llama3-8b") -> float:
    row = {"model": model, "cluster": "h200:1", "schedule": "1f1b", "tokens": tokens}
    return estimate(layout_from(row | {"batch_tokens": tokens})).seconds


def test_the_fit_is_near_the_estimate_of_a_step() -> None:
    """Three numbers cannot follow rates that grow with the length: they are off by up to 9 %.
    Differences of two steps are compared, for a step has an update too."""
    cost = group_cost(SETTING)
    for tokens in (2048, 8192, 32_768):
        right = _step(2 * tokens) - _step(tokens)
        assert cost.seconds([2 * tokens], 1) - cost.seconds([tokens], 1) == pytest.approx(
            right, rel=0.09
        )


@pytest.mark.parametrize("name", ["gemma3-12b", "mistral-7b-v0.1", "phi-3-mini"])
def test_sequences_beyond_a_window_cost_what_they_see(name: str) -> None:
    """A square and a line are further from what bends at the window; all pairs would be 3 times as
    much or more."""
    cost = group_cost(replace(SETTING, model=MODELS[name], longest=1 << 16))
    right = _step(65_536, name) - _step(32_768, name)
    fitted = cost.seconds([65_536], 1) - cost.seconds([32_768], 1)
    assert fitted == pytest.approx(right, rel=0.25)


def test_exchanges_between_machines_cost_more() -> None:
    cost = group_cost(SETTING)
    assert [*cost.exchange] == [1, 2, 4, 8, 16]
    assert cost.exchange[1] == (0.0, 0.0)
    near, far = (cost.exchange[degree].token for degree in (8, 16))
    assert far > 4 * near > 0


def test_what_ranks_share_of_weights_decides_about_tokens() -> None:
    capacities = {
        shard: group_cost(replace(SETTING, shard=shard)).capacity for shard in ("optimizer", "full")
    }
    assert 0 < capacities["optimizer"] < capacities["full"]
    with pytest.raises(PlanError, match="leave 0 bytes"):
        group_cost(replace(SETTING, cluster=CLUSTERS["a100-80"], shard="none"))


@pytest.mark.long
def test_groups_of_unequal_sizes_gain_on_a_long_tailed_batch() -> None:
    cost = group_cost(SETTING)
    lengths = [200_000, *[2000] * 100, *[400] * 200]
    flexible, adaptive = (f(lengths, 16, cost) for f in (flexible_groups, adaptive_groups))
    assert flexible.seconds < adaptive.seconds
