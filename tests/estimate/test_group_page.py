"""The page about groups says what the cost model says of batches like those of Wikipedia."""

from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median

import pytest

from penstock.arch.presets import MODELS
from penstock.cluster.presets import CLUSTERS
from penstock.estimate.group_cost import GroupSetting, group_cost
from penstock.plan.sequence_groups.batch import adaptive_groups, flexible_groups, static_groups
from plan.sequence_groups.samples import long_tailed

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "sequence-groups.md"
LONGEST = 65_536


def four_times(cluster: str, cell: int, documents: int) -> list[float]:
    """With the smallest groups that hold the longest document, with the best fixed size, with the
    best size for the batch, and with groups of unequal sizes."""
    setting = GroupSetting(
        MODELS["llama3-8b"], replace(CLUSTERS[cluster], gpus=cell), cell, LONGEST, shard="full"
    )
    cost, lengths = group_cost(setting), batch_of(documents)
    least = cost.smallest_degree(LONGEST)
    fixed = {d: static_groups(lengths, cell, cost, d).seconds for d in cost.exchange if d >= least}
    adaptive, flexible = (
        f(lengths, cell, cost).seconds for f in (adaptive_groups, flexible_groups)
    )
    return [fixed[least], min(fixed.values()), adaptive, flexible]


def batch_of(documents: int) -> list[int]:
    return [LONGEST, *long_tailed(Random(0), documents - 1, LONGEST)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("cluster", "cell", "documents"), [("h200", 16, 256), ("a100-40", 64, 512)]
)
def test_figures_of_the_page(cluster: str, cell: int, documents: int) -> None:
    times = four_times(cluster, cell, documents)
    assert times == sorted(times, reverse=True)
    text = " ".join(PAGE.read_text().split())
    for seconds in times:
        assert f"{seconds:.2f}" in text, times
    assert f"median {round(median(batch_of(256)))} tokens" in text
