"""The numbers of a mesh: what they amount to, how they are written, which are refused."""

from dataclasses import replace

import pytest

from loops import each
from penstock.arch.config import ModelConfig
from penstock.arch.mesh_shape import AXES, MeshShape, fewest_heads, refuse_misfits
from penstock.arch.presets import MODELS
from penstock.errors import PenstockError, ShapeError

TINY = MODELS["tiny"]


def refusal(text: str) -> str:
    with pytest.raises(PenstockError) as caught:
        MeshShape.parse(text)
    return str(caught.value)


def misfit(mesh: MeshShape, model: ModelConfig) -> str:
    with pytest.raises(ShapeError) as caught:
        refuse_misfits(model, mesh)
    return str(caught.value)


def model(heads: int, kv_heads: int) -> ModelConfig:
    return replace(TINY, heads=heads, kv_heads=kv_heads)


def test_a_cell_is_sequence_times_tensor_and_a_run_is_all_cells() -> None:
    mesh = MeshShape(replicas=3, sequence=4, ring=2, tensor=5)
    assert (mesh.cell.ranks, mesh.cell.ulysses, mesh.ranks(7)) == (20, 2, 420)
    assert MeshShape().ranks(7) == 7


def test_a_mesh_is_read_in_any_order_and_with_spaces() -> None:
    assert MeshShape.parse("tensor=2,sequence=4,ring=2,replicas=3") == MeshShape(3, 4, 2, 2)
    assert MeshShape.parse(" ring = 2, sequence=2 ") == MeshShape(sequence=2, ring=2)
    assert MeshShape.parse("tensor=1") == MeshShape(order=AXES)


@each(
    ("text", "said"),
    [
        ("tesnor=2", "--mesh 'tesnor=2': a mesh has no 'tesnor'\nhint: did you mean 'tensor'?"),
        (
            "replica=2",
            "--mesh 'replica=2': a mesh has no 'replica'\nhint: did you mean 'replicas'?",
        ),
        ("devices=2", "--mesh 'devices=2': a mesh has no 'devices'\nhint: -p gives the devices"),
        (
            "x=1",
            "--mesh 'x=1': a mesh has no 'x'\n"
            "hint: one of: replicas, sequence, ring, tensor, experts, norms",
        ),
        ("norms=2", "--mesh 'norms=2': norms is '2'\nhint: give scattered or replicated"),
        ("tensor=two", "--mesh 'tensor=two': tensor is 'two'\nhint: give a whole number above 0"),
        ("tensor=2.0", "--mesh 'tensor=2.0': tensor is '2.0'\nhint: give a whole number above 0"),
        ("tensor=-1", "--mesh 'tensor=-1': tensor is '-1'\nhint: give a whole number above 0"),
        ("tensor=", "--mesh 'tensor=': tensor is ''\nhint: give a whole number above 0"),
        ("tensor=0", "--mesh 'tensor=0': tensor is 0\nhint: give an integer above 0"),
        (
            "tensor=9999999",
            "--mesh 'tensor=9999999': tensor is 9999999\nhint: give at most 1,048,576",
        ),
        ("tensor=2,tensor=2", "--mesh 'tensor=2,tensor=2' has tensor twice\nhint: give it once"),
        (
            "ring=3,sequence=4",
            "--mesh 'ring=3,sequence=4': ring is 3, which does not divide sequence, which is 4\n"
            "hint: give a ring of 2 or 4",
        ),
        (
            "ring=9,sequence=4",
            "--mesh 'ring=9,sequence=4': ring is 9, which does not divide sequence, which is 4\n"
            "hint: give a ring of 4",
        ),
    ],
)
def test_a_mesh_that_cannot_be_read_is_refused_with_what_to_write(text: str, said: str) -> None:
    assert refusal(text) == said


@each("text", ["", "tensor", "tensor=2,", "2"])
def test_what_names_no_size_is_refused_with_an_example(text: str) -> None:
    said = refusal(text)
    assert said.startswith(f"--mesh {text!r}: ")
    assert said.endswith(
        "hint: write NAME=NUMBER with commas between, for example tensor=2,sequence=2"
    )


def test_what_is_very_long_is_not_repeated_whole() -> None:
    assert len(refusal("x" * 10_000 + "=1")) < 400
    assert len(refusal("tensor=" + "1" * 10_000)) < 400


@each("order", [(), AXES[:3], (*AXES, "tensor"), ("replica", "device", "ring", "tensor")])
def test_an_order_that_does_not_name_each_axis_once_is_refused(order: tuple[str, ...]) -> None:
    with pytest.raises(ShapeError, match="order is") as caught:
        MeshShape(order=order)
    assert caught.value.hint == "name each of replica, device, sequence, tensor once"


def dealt(heads: int, kv_heads: int, ranks: int) -> list[int]:
    """Query heads of each rank, dealt out one by one: the rule, written out."""
    if kv_heads >= ranks:
        bounds = [kv_heads * rank // ranks for rank in range(ranks + 1)]
        return [(bounds[i + 1] - bounds[i]) * heads // kv_heads for i in range(ranks)]
    counts = [0] * ranks
    for head in range(kv_heads):
        holders = [rank for rank in range(ranks) if kv_heads * rank // ranks == head]
        for query in range(heads // kv_heads):
            counts[holders[query % len(holders)]] += 1
    return counts


def test_the_fewest_heads_are_those_of_the_rank_that_gets_fewest() -> None:
    for kv_heads in range(1, 9):
        for heads in range(kv_heads, 33, kv_heads):
            for ranks in range(1, 40):
                wanted = min(dealt(heads, kv_heads, ranks))
                if wanted:
                    assert fewest_heads(heads, kv_heads, ranks) == wanted
                else:
                    with pytest.raises(ShapeError, match="would have none"):
                        fewest_heads(heads, kv_heads, ranks)


@each(
    ("mesh", "heads"),
    [
        (MeshShape(), (4, 2)),
        (MeshShape(tensor=4), (4, 2)),
        (MeshShape(tensor=3), (4, 2)),
        (MeshShape(sequence=4), (4, 1)),
        (MeshShape(sequence=2, tensor=2), (4, 2)),
        (MeshShape(sequence=64, ring=64, tensor=4), (4, 2)),
        (MeshShape(sequence=8, ring=2), (4, 4)),
    ],
)
def test_meshes_in_which_every_rank_has_a_query_head_are_taken(
    mesh: MeshShape, heads: tuple[int, int]
) -> None:
    refuse_misfits(model(*heads), mesh)


@each(
    ("mesh", "heads", "said"),
    [
        (
            MeshShape(tensor=5),
            (4, 2),
            "mesh.tensor is 5, but the model has 4 query heads\nhint: set mesh.tensor to 4 or less",
        ),
        (
            MeshShape(sequence=6),
            (4, 2),
            "mesh.sequence is 6 and mesh.ring 1, so that 6 ranks exchange heads, but the model has "
            "4 query heads\nhint: set mesh.ring to 2, or mesh.sequence to 4",
        ),
        (
            MeshShape(sequence=4, ring=1, tensor=2),
            (4, 2),
            "mesh.sequence is 4 and mesh.ring 1, so that 4 ranks exchange heads, but one of 2 "
            "tensor ranks has 2 of 4 query heads\nhint: set mesh.ring to 2, or mesh.sequence to 2",
        ),
        (  # 12 ranks for 12 heads, but a tensor rank has one key/value head of three, the other two
            MeshShape(sequence=6, tensor=2),
            (12, 3),
            "mesh.sequence is 6 and mesh.ring 1, so that 6 ranks exchange heads, but one of 2 "
            "tensor ranks has 4 of 12 query heads\nhint: set mesh.ring to 2, or mesh.sequence to 4",
        ),
        (
            MeshShape(sequence=12, ring=2, tensor=4),
            (8, 8),
            "mesh.sequence is 12 and mesh.ring 2, so that 6 ranks exchange heads, but one of 4 "
            "tensor ranks has 2 of 8 query heads\nhint: set mesh.ring to 6, or mesh.sequence to 4",
        ),
    ],
)
def test_a_rank_without_a_query_head_is_refused_with_sizes_that_fit(
    mesh: MeshShape, heads: tuple[int, int], said: str
) -> None:
    assert misfit(mesh, model(*heads)) == said


def test_what_a_refusal_offers_is_taken() -> None:
    for mesh in (MeshShape(sequence=6, ring=6), MeshShape(sequence=4)):
        refuse_misfits(model(4, 2), mesh)
    refuse_misfits(model(8, 8), MeshShape(sequence=12, ring=6, tensor=4))
    refuse_misfits(model(8, 8), MeshShape(sequence=4, ring=2, tensor=4))


def test_tensor_ranks_need_a_column_and_a_word_each() -> None:
    narrow = replace(TINY, ffn=2)
    assert misfit(MeshShape(tensor=4), narrow) == (
        "mesh.tensor is 4, but the model has 2 columns of the MLP\n"
        "hint: set mesh.tensor to 2 or less"
    )
    few = replace(TINY, vocabulary=3)
    assert misfit(MeshShape(tensor=4), few) == (
        "mesh.tensor is 4, but the model has 3 words of the vocabulary\n"
        "hint: set mesh.tensor to 3 or less"
    )
    refuse_misfits(few, MeshShape(tensor=3))
