from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arch.test_config import gpt
from penstock.arch.presets import model
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.cost.work_amounts import WorkAmounts
from penstock.cost.workload import Workload
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.transform import recompute_all, split_backward
from transform.pictures import draw

L, H, A, V, S = 6, 48, 4, 120, 32
"""Layers, hidden, heads, vocabulary and sequence of a small model in the papers' shape."""
GPT = gpt(L, H, A, V)


def total(workload: Workload, schedule: Schedule) -> dict[str, int]:
    return {name: int(column.sum()) for name, column in workload.work(schedule)._asdict().items()}


def of_op(workload: Workload, schedule: Schedule, op: Op) -> WorkAmounts:
    row = schedule.table.row_of(op)
    assert row >= 0
    return WorkAmounts(*(column[row : row + 1] for column in workload.work(schedule)))


def full_attention(work: dict[str, int]) -> int:
    """FLOPs when every query is counted with every key, as the papers do, instead of half."""
    return work["linear"] + 2 * (work["attention"] + work["attention_backward"])


def test_a_step_has_the_flops_of_the_papers_formula() -> None:
    """arXiv:2104.04473: 72 B s l h^2 (1 + s / 6h + V / 12lh) without recomputation."""
    batch = 3
    schedule = build("1f1b", devices=2, microbatches=batch)
    found = full_attention(total(Workload.of(schedule.shape, GPT, [S]), schedule))
    formula = 72 * batch * S * L * H**2 * (1 + Fraction(S, 6 * H) + Fraction(V, 12 * L * H))
    assert found == formula


def test_a_recomputed_step_has_the_flops_of_the_papers_formula() -> None:
    """arXiv:2104.04473: 96 B s l h^2 (1 + s / 6h + V / 16lh) with all layers recomputed."""
    batch = 3
    schedule = recompute_all(build("1f1b", devices=2, microbatches=batch))
    found = full_attention(total(Workload.of(schedule.shape, GPT, [S]), schedule))
    formula = 96 * batch * S * L * H**2 * (1 + Fraction(S, 6 * H) + Fraction(V, 16 * L * H))
    assert found == formula


@pytest.mark.parametrize(
    ("kind", "flops"),
    [
        ("F", S * H * (24 * H + 4 * S)),
        ("I", S * H * (24 * H + 8 * S)),
        ("W", 24 * S * H**2),
    ],
)
def test_a_layer_has_the_flops_of_the_split_backward(kind: str, flops: int) -> None:
    """arXiv:2401.10241, table of FLOPs per layer: F, B (here I) and W."""
    schedule = split_backward(build("1f1b", devices=L, microbatches=1))
    workload = Workload.of(schedule.shape, GPT, [S])
    work = of_op(workload, schedule, Op(kind, 1, 0))
    assert (
        full_attention({name: int(column[0]) for name, column in work._asdict().items()}) == flops
    )


def test_a_full_backward_is_its_two_halves() -> None:
    base = build("1f1b", devices=3, microbatches=2)
    workload = Workload.of(base.shape, model("tiny"), [40])
    assert total(workload, base) == total(workload, split_backward(base))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_slices_add_up_to_the_whole_sequence_exactly(lengths: list[int]) -> None:
    sliced = build("seq1f1b", devices=2, microbatches=1, slices=len(lengths))
    whole = build("seq1f1b", devices=2, microbatches=1, slices=1)
    config = model("tiny")
    assert total(Workload.of(sliced.shape, config, lengths), sliced) == total(
        Workload.of(whole.shape, config, [sum(lengths)]), whole
    )


@given(st.lists(st.integers(1, 30), min_size=2, max_size=5))
def test_a_slice_attends_to_everything_before_it(lengths: list[int]) -> None:
    schedule = build("seq1f1b", devices=4, microbatches=1, slices=len(lengths))
    config = model("tiny")
    workload = Workload.of(schedule.shape, config, lengths)
    start = 0
    for slice, length in enumerate(lengths):
        # A query sees the keys before it and half of itself, on the one layer of its stage.
        pairs = sum(position + Fraction(1, 2) for position in range(start, start + length))
        work = of_op(workload, schedule, Op("F", 1, 0, slice))
        assert work.attention[0] == pairs * 4 * config.heads * config.head_size
        start += length


def test_microbatches_may_have_different_slices() -> None:
    ragged = draw("0  0F0 0F1 0F1.1 0B1.1 0B1 0B0", Shape(1, 1, (1, 2)))
    work = Workload(model("tiny"), ((10,), (4, 6)), (4,)).work(ragged)
    assert work.attention.tolist()[:3] == [4 * 256 * 50, 4 * 256 * 8, 4 * 256 * 42]


def test_the_head_belongs_to_the_input_gradient_of_the_last_stage() -> None:
    schedule = recompute_all(split_backward(build("1f1b", devices=2, microbatches=1)))
    workload = Workload(GPT, ((S,),), (L // 2, L // 2))

    def head(kind: str) -> int:
        last, first = (of_op(workload, schedule, Op(kind, stage, 0)).flops[0] for stage in (1, 0))
        return int(last - first)

    product = 2 * S * H * V
    assert [head(kind) for kind in "NRIW"] == [0, 0, 3 * product, 0]


@pytest.mark.parametrize(("loss", "products"), [("T", (1, 2)), ("S", (2, 1))])
def test_vocabulary_shards_divide_the_head(loss: str, products: tuple[int, int]) -> None:
    """arXiv:2411.05288: S and T have 2 and 4, or 4 and 2, times b s h V / p FLOPs."""
    sharded = draw(
        """
        0  0E0 0F0 0S0 0T0 0B0 0D0
        1  1E0 1F0 1S0 1T0 1B0 1D0
        """,
        Shape(2, 2, (1,), embed="E", loss=loss),
    )
    workload = Workload(GPT, ((S,),), (3, 3))
    found = [int(of_op(workload, sharded, Op(kind, 1, 0)).flops[0]) for kind in "ST"]
    assert found == [count * 2 * S * H * V // 2 for count in products]
    layers = [int(of_op(workload, sharded, Op("F", stage, 0)).flops[0]) for stage in (0, 1)]
    assert layers[0] == layers[1]


def test_embeddings_move_rows_and_cost_no_flops() -> None:
    base = build("1f1b", devices=2, microbatches=1)
    workload = Workload(GPT, ((S,),), (3, 3))
    row = 2 * H
    lookups = [int(of_op(workload, base, Op(kind, 0, 0)).lookup[0]) for kind in "FB"]
    assert lookups == [2 * S * row, 3 * S * row]
    assert of_op(workload, base, Op("F", 1, 0)).lookup[0] == 0
    sharded = draw("0  0E0 0F0 0B0 0D0\n1  1E0 1F0 1B0 1D0", Shape(2, 2, (1,), embed="E"))
    lookups = [int(of_op(workload, sharded, Op(kind, 1, 0)).lookup[0]) for kind in "EFBD"]
    # A shard finds half of the tokens, but its part of the input has a row for each.
    assert lookups == [(S // 2 + S) * row, 0, 0, (S + 2 * (S // 2)) * row]


def test_bytes_follow_tokens_layers_and_the_ends_of_the_model() -> None:
    schedule = build("seq1f1b", devices=2, microbatches=1, slices=2)
    config = model("tiny")
    workload = Workload(config, ((10, 6),), (3, 1))

    def held(size: str) -> list[int]:
        ops = [Op("F", stage, 0, slice) for stage in (0, 1) for slice in (0, 1)]
        found = workload.bytes(schedule, size)
        return [int(found[schedule.table.row_of(op)]) for op in ops]

    layer, end = config.saved_bytes, 64 * 2
    assert held("act") == [10 * 3 * layer, 6 * 3 * layer, 10 * (layer + end), 6 * (layer + end)]
    assert held("stash") == [n * config.stash_bytes for n in (30, 18, 10, 6)]
    assert held("kv") == [n * 2 * 2 * 16 * 2 for n in (30, 18, 10, 6)]
    # Nobody leaves gradients for the keys of the last slice.
    assert held("dkv") == [n * 2 * 2 * 16 * 2 for n in (30, 0, 10, 0)]
    # The first stage starts from tokens, the second from a hidden state.
    assert held("ckpt") == [0, 0, 10 * 64 * 2, 6 * 64 * 2]


def test_norms_of_queries_and_keys_keep_the_values_of_slices_a_second_time() -> None:
    """Values lie between what is kept of the projection; those of a whole sequence only there."""
    config = replace(model("tiny"), qk_norm=True)
    for cut, twice in (((16,), 0), ((10, 6), 16 * 2 * 16 * 2)):
        schedule = build("seq1f1b", devices=2, microbatches=1, slices=len(cut))
        found = Workload(config, (cut,), (3, 1)).bytes(schedule, "act")
        forwards = [schedule.table.row_of(Op("F", 0, 0, slice)) for slice in range(len(cut))]
        assert int(found[forwards].sum()) == 3 * (16 * config.saved_bytes + twice)


def test_an_applied_workload_says_what_transfers_carry() -> None:
    base = draw(
        "0  0F0 0F1 0F1.1 0B1.1 0B1 0B0\n1  1F0 1F1 1F1.1 1B1.1 1B1 1B0", Shape(2, 2, (1, 2))
    )
    shape = Workload(model("tiny"), ((8,), (10, 6)), (2, 2)).applied_to(base).shape
    assert shape.boundary_bytes == (16 * 64 * 2,)
    assert shape.slice_share == ((Fraction(1, 2),), (Fraction(5, 8), Fraction(3, 8)))


@pytest.mark.parametrize(
    ("lengths", "layers", "message"),
    [
        (((8,),), (2, 1), "do not make up the 4 layers"),
        (((8,),), (5, -1), "do not make up the 4 layers"),
        (((8,),), (), "do not make up the 4 layers"),
        (((8, 0),), (2, 2), "a slice has no tokens"),
        ((), (2, 2), "a slice has no tokens"),
        (((),), (2, 2), "a slice has no tokens"),
        (((10**9,),), (2, 2), "more than"),
    ],
)
def test_impossible_workloads_are_refused(
    lengths: tuple[tuple[int, ...], ...], layers: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        Workload(model("tiny"), lengths, layers)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(2, 2, (2,)),
        Shape(2, 2, (1, 1)),
        Shape(2, 4, (1,)),
        Shape(2, 2, (1,), weightless=frozenset({1})),
    ],
)
def test_a_workload_of_another_shape_is_refused(shape: Shape) -> None:
    workload = Workload(model("tiny"), ((8,),), (2, 2))
    schedule = draw("0  0F0 0B0\n1  1F0 1B0", shape)
    for use in (workload.work, workload.applied_to, lambda s: workload.bytes(s, "act")):
        with pytest.raises(ShapeError, match="the workload has 2 stages"):
            use(schedule)


def test_work_on_long_sequences_is_exact_or_refused() -> None:
    """4 x 64 heads of 128 x (2^21)^2 FLOPs of a layer are 2^57, and of 80 layers above 2^62."""
    schedule, tokens = draw("0  0F0 0B0", Shape(1, 1, (1,))), 1 << 21
    few, many = (
        Workload(replace(model("llama3-70b"), layers=layers), ((tokens,),), (layers,))
        for layers in (10, 80)
    )
    assert total(few, schedule)["attention_backward"] == 10 * 4 * 64 * 128 * tokens**2
    with pytest.raises(ShapeError, match="an op over 2,097,152 tokens would have more than"):
        many.work(schedule)


def test_ops_of_a_whole_stage_have_no_work_and_hold_nothing() -> None:
    schedule = draw("0  0F0 0B0 0U0\n0 collective  0G0 0Z0", Shape(1, 1, (1,)))
    workload = Workload(model("tiny"), ((8,),), (4,))
    rows = [schedule.table.row_of(Op(kind, 0, 0)) for kind in "UGZ"]
    assert all(column[rows].sum() == 0 for column in workload.work(schedule))
    assert workload.bytes(schedule, "act")[rows].sum() == 0
