"""Which groups a configuration asks for, and what it cannot have."""

import pytest

from penstock.arch.presets import MODELS
from penstock.data.settings import GROUP_NAMES
from penstock.errors import PenstockError
from penstock.plan.sequence_groups.batch import GROUPINGS
from penstock.plan.sequence_groups.planner import GroupPlanner
from penstock.train.loop.grouped_setup import group_planner, largest_microbatch
from train.samples import short

MODEL = MODELS["llama3-8b"]
FLEX = ("data.policy=flex", "mesh.sequence=8", "batch.length=4096")
STATIC = (*FLEX, "data.groups=static")


def planner(*changes: str) -> GroupPlanner:
    return group_planner(short(*changes), MODEL)


def test_every_name_of_the_configuration_is_a_way_to_group() -> None:
    assert tuple(GROUPINGS) == GROUP_NAMES
    for name in GROUP_NAMES:
        assert planner(*FLEX, f"data.groups={name}").grouping == name


def test_section_10_static_groups_have_one_size() -> None:
    assert [*planner(*STATIC).cost.exchange] == [8]
    assert [*planner(*STATIC, "data.rank_tokens=1024").cost.exchange] == [4]
    assert [*planner(*STATIC, "data.rank_tokens=1024", "data.group_ranks=8").cost.exchange] == [8]
    assert [*planner(*FLEX).cost.exchange] == [1, 2, 4, 8]


def test_section_10_sizes_of_groups_have_a_query_head_for_each_rank() -> None:
    few = MODELS["tiny"]
    wide = group_planner(short("data.policy=flex", "mesh.sequence=64"), MODEL)
    narrow = group_planner(short("data.policy=flex", "mesh.sequence=64"), few)
    assert max(wide.cost.exchange) == MODEL.heads
    assert max(narrow.cost.exchange) == few.heads


def test_ranks_of_a_ring_are_one_place_that_holds_more() -> None:
    plain, ring = planner(*FLEX), planner(*FLEX, "mesh.ring=2")
    assert (plain.cell, ring.cell) == (8, 4)
    assert (plain.cost.capacity, ring.cost.capacity) == (512, 1024)
    assert ring.cost.pair == plain.cost.pair / 2
    assert largest_microbatch(short(*FLEX, "mesh.ring=2")) == 4096


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("data.group_ranks=3", "groups may have 1, 2, 4, 8 ranks"),
        ("data.group_ranks=4", "so many ranks hold 2048 tokens, but batch.length is 4096"),
    ],
)
def test_sizes_that_groups_cannot_have_are_refused(change: str, words: str) -> None:
    with pytest.raises(PenstockError, match=words) as refusal:
        planner(*STATIC, change)
    assert refusal.value.hint
