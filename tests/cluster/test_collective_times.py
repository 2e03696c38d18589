"""Times of collectives are the formulas of rings and trees."""

from dataclasses import replace

import pytest

from penstock.cluster.cluster import GpuMachine
from penstock.cluster.collective_times import MACHINE_SHARE, NETWORK_SHARE, START, GroupLinks
from penstock.cluster.presets import CLUSTERS

H100 = CLUSTERS["h100"]
NEAR, FAR = H100.machine.latency, H100.network.latency
SIZE = 1e9


def test_a_ring_in_a_machine_has_a_latency_for_each_step() -> None:
    group = GroupLinks(H100, 8, 8)
    rate = 450e9 * MACHINE_SHARE
    sent = 2 * 7 / 8 * SIZE
    assert group.ring_seconds(sent / 2) == pytest.approx(
        START + 7 * NEAR + sent / 2 / rate, rel=1e-12
    )
    assert group.sum_seconds(sent) == pytest.approx(START + 14 * NEAR + sent / rate, rel=1e-12)


def test_a_small_sum_of_many_ranks_takes_the_tree() -> None:
    group = GroupLinks(H100, 1024, 8)
    tree = START + 2 * (7 * FAR + 7 * NEAR) + 2 * 1024 / group.rate
    assert group.sum_seconds(2 * 1023 / 1024 * 1024) == pytest.approx(tree, rel=1e-12)
    assert group.ring_seconds(1024) > tree


def test_a_ring_over_machines_passes_each_of_them_once() -> None:
    group = GroupLinks(H100, 64, 8)
    assert group.ring_latency == pytest.approx(8 * FAR + 55 * NEAR, rel=1e-12)


@pytest.mark.parametrize(("near", "cards"), [(1, 1), (2, 2), (4, 4)])
def test_ranks_of_a_group_in_one_machine_share_their_cards(near: int, cards: int) -> None:
    assert GroupLinks(H100, 64, near).rate == pytest.approx(cards * 50e9 * NETWORK_SHARE, rel=1e-12)


def test_all_cards_together_may_be_as_fast_as_the_links_in_a_machine() -> None:
    assert GroupLinks(H100, 64, 8).rate == pytest.approx(min(400e9 * 0.9, 450e9 * 0.8), rel=1e-12)


def test_fewer_cards_are_shared_by_more_groups() -> None:
    half = replace(H100, network=replace(H100.network, cards=4))
    assert GroupLinks(half, 16, 1).rate == pytest.approx(25e9 * NETWORK_SHARE, rel=1e-12)


def test_what_is_passed_on_leaves_a_machine_over_one_card() -> None:
    """A ring of 32 ranks in 4 machines: the last rank of each sends to the next machine."""
    sent = 1e9
    assert GroupLinks(H100, 32, 8).pass_seconds(sent) == pytest.approx(
        START + FAR + sent / (50e9 * NETWORK_SHARE), rel=1e-12
    )
    assert GroupLinks(H100, 8, 8).pass_seconds(sent) == pytest.approx(
        START + NEAR + sent / (450e9 * MACHINE_SHARE), rel=1e-12
    )


@pytest.mark.parametrize(("near", "share"), [(8, 1), (2, 1), (1, 1 / 2)])
def test_rings_that_leave_a_machine_share_its_cards(near: int, share: float) -> None:
    """Of 8 GPUs with 4 cards, 1, 4 or 8 send to another machine."""
    half = replace(H100, network=replace(H100.network, cards=4))
    assert GroupLinks(half, 16, near).pass_rate == pytest.approx(share * 45e9, rel=1e-12)


def test_an_exchange_over_machines_waits_for_what_leaves_them() -> None:
    """Of 15 others 8 are in the other machine, and every rank has a card for what it sends them."""
    sent = 15e8
    far, near = 8e8 / (50e9 * NETWORK_SHARE), 7e8 / (450e9 * MACHINE_SHARE)
    found = GroupLinks(H100, 16, 8).exchange_seconds(sent)
    assert found == pytest.approx(START + FAR + max(far, near), rel=1e-12)


def test_an_exchange_of_one_rank_in_each_machine_has_no_part_inside_them() -> None:
    """Links to each of the others carry nothing for a group that has none of them."""
    direct = replace(H100, machine=replace(H100.machine, wiring="direct"))
    for cluster in (H100, direct):
        assert GroupLinks(cluster, 4, 1).exchange_seconds(SIZE) == pytest.approx(
            START + FAR + SIZE / (50e9 * NETWORK_SHARE), rel=1e-12
        )


def test_a_pair_with_links_of_its_own_has_one_of_seven() -> None:
    direct = GpuMachine(8, 448e9, 0.0, "direct")
    assert [direct.group_rate(ranks) for ranks in (2, 4, 8)] == [64e9, 192e9, 448e9]


def test_longer_messages_reach_more_of_the_rate() -> None:
    group, sizes = GroupLinks(H100, 8, 8), [2.0**power for power in range(10, 34, 3)]
    reached = [size / group.ring_seconds(size) for size in sizes]
    assert reached == sorted(reached)
    assert 0.99 < reached[-1] / group.rate < 1


def test_one_rank_waits_for_nobody() -> None:
    alone = GroupLinks(H100, 1, 1)
    times = (alone.sum_seconds, alone.ring_seconds, alone.message_seconds)
    assert {each(1e9) for each in (*times, alone.pass_seconds, alone.exchange_seconds)} == {0}
