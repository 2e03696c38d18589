"""Steps of documents are priced as an estimate prices whole sequences."""

from dataclasses import replace

import pytest

from penstock.arch.mesh_shape import MeshShape
from penstock.arch.presets import model
from penstock.cluster.presets import preset_cluster
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.policies.arranged import (
    ArrangedStep,
    GroupDocuments,
    grouped_step,
    packed_step,
    sliced_step,
)
from penstock.estimate.policies.op_seconds import op_seconds
from penstock.estimate.policies.step_price import PolicySetting, mean_price, sized_for
from penstock.estimate.policies.steps import whole_orders
from penstock.estimate.price import estimate_step
from penstock.estimate.step_schedule import slice_lengths
from penstock.plan.balance import TokenCost
from penstock.plan.ragged_batch import RaggedBatches, SliceRule
from penstock.plan.sequence_groups.groups import GroupedMicrobatch, SequenceGroup
from penstock.schedules import Spec, build, registry

MODEL, LENGTH = model("llama3-8b"), 16384
RAGGED: Spec = [spec for spec in registry().values() if spec.ragged][-1]


def setting(mesh: MeshShape, devices: int, **changes: object) -> PolicySetting:
    cluster = sized_for(preset_cluster("h200"), mesh.ranks(devices))
    return PolicySetting(MODEL, cluster, mesh, devices, LENGTH, **changes)  # type: ignore[arg-type]


def whole(devices: int, microbatches: int, *documents: int) -> ArrangedStep:
    order = whole_orders(RAGGED, devices)(microbatches)
    rows = [[documents or (LENGTH,)]] * microbatches
    return packed_step(order, rows, ((LENGTH,),) * microbatches)


@pytest.mark.parametrize(
    ("devices", "mesh", "shard"),
    [
        (2, MeshShape(), "none"),
        (2, MeshShape(sequence=2), "full"),
        (1, MeshShape(tensor=2, replicas=2), "optimizer"),
        (2, MeshShape(sequence=2, ring=2), "none"),
    ],
)
def test_whole_sequences_take_what_an_estimate_says(
    devices: int, mesh: MeshShape, shard: str
) -> None:
    found = setting(mesh, devices, shard=shard)
    batch = 4 * mesh.replicas * LENGTH
    layout = TrainingLayout(MODEL, found.cluster, LENGTH, batch, "1f1b", mesh, devices)
    said = estimate_step(replace(layout, shard=shard))  # type: ignore[arg-type]
    assert found.seconds(whole(devices, 4)) == pytest.approx(said.seconds, rel=1e-9)


def test_slices_take_what_an_estimate_says() -> None:
    found = setting(MeshShape(), 2)
    lengths = slice_lengths(MODEL, LENGTH, 4, 1)
    schedule = build("seq1f1b", devices=2, microbatches=4, slices=4)
    layout = TrainingLayout(
        MODEL, found.cluster, LENGTH, 4 * LENGTH, "seq1f1b", MeshShape(), 2, slices=4
    )
    step = packed_step(schedule, [[(LENGTH,)]] * 4, (lengths,) * 4)
    assert found.seconds(step) == pytest.approx(estimate_step(layout).seconds, rel=1e-9)


def test_a_token_attends_to_its_own_document_alone() -> None:
    found = setting(MeshShape(), 2)
    parts = [whole(2, 4, *[LENGTH // count] * count) for count in (1, 2, 8)]
    pairs = [sum(map(sum, step.pairs)) for step in parts]
    assert pairs == [4 * LENGTH**2, 2 * LENGTH**2, LENGTH**2 // 2]
    times = [found.seconds(step) for step in parts]
    assert times[0] > times[1] > times[2]
    assert len({found.memory(step) for step in parts}) == 1  # activations are those of tokens


def test_a_slice_has_the_pairs_of_its_documents_wherever_it_is_cut() -> None:
    documents, cuts = (5, 1, 9, 17), ((32,), (7, 25), (1, 4, 11, 16))
    schedule = whole_orders(RAGGED, 1)(1)
    found = [packed_step(schedule, [[documents]], (cut,)) for cut in cuts]
    assert {sum(map(sum, step.pairs)) for step in found} == {sum(n * n for n in documents)}
    assert [step.lengths for step in found] == [(cut,) for cut in cuts]


def test_slices_of_a_packed_batch_have_all_tokens_and_pairs() -> None:
    lengths = [40, 7, 3, 3, 29]
    ragged = RaggedBatches(RAGGED, 2, SliceRule(8, 2), 40, TokenCost(1, 0))
    step = sliced_step(ragged.order(lengths))
    assert sum(map(sum, step.lengths)) == sum(lengths)
    assert sum(map(sum, step.pairs)) == sum(n * n for n in lengths)


def grouped(*degrees: int, length: int = LENGTH) -> ArrangedStep:
    """Two microbatches, each group with one document."""
    groups = [SequenceGroup(degree, (number,)) for number, degree in enumerate(degrees)]
    some = [GroupedMicrobatch(tuple(groups), 0.0)] * 2
    return grouped_step(whole_orders(RAGGED, 2)(2), [length] * len(degrees), some)


def test_groups_of_one_size_are_as_fast_as_devices_with_so_many_ranks() -> None:
    """The others of a cell of four are replicas of a cell of two."""
    four = setting(MeshShape(sequence=4), 2)
    pair = setting(MeshShape(sequence=2, replicas=2), 2)
    assert four.seconds(grouped(2, 2)) == pytest.approx(pair.seconds(whole(2, 2)), rel=1e-9)
    assert four.seconds(grouped(4)) == pytest.approx(four.seconds(whole(2, 2)), rel=1e-9)


def test_the_slowest_group_decides_and_the_fullest_rank_needs_most() -> None:
    four = setting(MeshShape(sequence=4), 2)
    alone, beside = grouped(2), grouped(2, 1, length=LENGTH)
    assert beside.fullest == (LENGTH, LENGTH)
    assert alone.fullest == (LENGTH // 2,) * 2
    assert four.seconds(beside) > four.seconds(alone)
    assert four.memory(beside) > four.memory(alone)
    assert four.memory(grouped(4)) == four.memory(whole(2, 2))


def test_every_rank_has_the_times_of_its_own_group() -> None:
    four = setting(MeshShape(sequence=4), 2)
    layout = four.layout_for(grouped(2, 1).schedule)
    first, second, third, last = op_seconds(layout, grouped(2, 1))
    assert first == second
    assert max(third.values()) > max(first.values()) > 0
    assert set(last.values()) == {0.0}  # no group has this rank
    assert len(op_seconds(layout, whole(2, 2))) == 1


def test_a_mean_is_of_times_and_the_most_is_of_memory() -> None:
    found, steps = setting(MeshShape(), 2), [whole(2, 2), whole(2, 4)]
    prices = [found.price(step) for step in steps]
    mean = mean_price(found, steps)
    assert mean.seconds == sum(price.seconds for price in prices) / 2
    assert mean.memory == max(price.memory for price in prices)


def test_more_microbatches_than_there_are_have_one_token() -> None:
    groups = grouped_step(
        whole_orders(RAGGED, 2)(3), [4], [GroupedMicrobatch((SequenceGroup(2, (0,)),), 0.0)]
    )
    assert groups.lengths == ((4,), (1,), (1,))
    assert groups.groups[-1] == (GroupDocuments(1, ((0, 1),)),)
