"""Cells in which nothing divides, on threads: heads, key/value heads, tokens."""

from dataclasses import replace

import pytest

from loops import one_of
from penstock.arch.cell_shape import CellShape
from penstock.arch.config import ModelConfig
from penstock.arch.dealing import deal_heads, deal_sizes
from penstock.verify.compare import TOLERANCE
from penstock.verify.trial import trial_part
from penstock.verify.variants import Trial
from verify.cell_ranks import RankReport, on_threads
from verify.cell_samples import (
    LENGTHS,
    MODEL,
    again_without_attention,
    cut_at_attention,
    from_right,
    sample,
    with_weights_sent,
)

pytestmark = [pytest.mark.torch, pytest.mark.long]

LIMIT = TOLERANCE["cpu"]["float64"]


def right(trial: Trial) -> list[RankReport]:
    """What the ranks report, once they have found what the oracle says."""
    reports = on_threads(trial, trial_part)
    found = from_right(trial, [report.result for report in reports])
    assert found.beyond(LIMIT) == []
    return reports


def with_heads(heads: int, kv_heads: int) -> ModelConfig:
    return replace(MODEL, heads=heads, kv_heads=kv_heads)


def query_heads(heads: int, kv_heads: int, ranks: int) -> list[int]:
    shares = (deal_heads(heads, kv_heads, rank, ranks) for rank in range(ranks))
    return [len(share.queries) for share in shares]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "ranks", "dealt"),
    [
        (7, 7, 4, [1, 2, 2, 2]),
        (7, 1, 4, [1, 2, 2, 2]),
        (20, 4, 8, [2, 3, 2, 3, 2, 3, 2, 3]),
        (20, 2, 8, [2, 3, 2, 3, 2, 3, 2, 3]),
        (6, 3, 2, [2, 4]),
    ],
)
def test_heads_that_do_not_divide_are_exchanged(
    heads: int, kv_heads: int, ranks: int, dealt: list[int]
) -> None:
    assert query_heads(heads, kv_heads, ranks) == dealt
    assert len(right(sample(CellShape(ulysses=ranks), with_heads(heads, kv_heads)))) == ranks


@pytest.mark.parametrize("norms", ["scattered", "replicated"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 1), (4, 2), (7, 1), (6, 2)])
def test_key_value_heads_are_held_by_several_tensor_ranks(
    heads: int, kv_heads: int, norms: str
) -> None:
    cell = CellShape(tensor=4, norms=norms)
    assert len(right(sample(cell, with_heads(heads, kv_heads), rows=2))) == 4


CELLS = {
    "ulysses": CellShape(ulysses=4),
    "ring": CellShape(ring=3),
    "both": CellShape(ulysses=2, ring=2),
    "tensor": CellShape(tensor=4),
    "tensor, replicated": CellShape(tensor=4, norms="replicated"),
    "tensor and ulysses": CellShape(tensor=2, ulysses=2),
    "tensor and ring": CellShape(tensor=2, ring=3),
}


@pytest.mark.parametrize("cell", one_of(3, ((cell,) for cell in CELLS.values())), ids=CELLS.keys())
@pytest.mark.parametrize("lengths", [(9, 2, 1, 4), (1, 1), (2,)], ids=str)
def test_ranks_that_have_no_token_of_a_slice_take_part(
    cell: CellShape, lengths: tuple[int, ...]
) -> None:
    assert min(lengths) < cell.ranks
    assert len(right(sample(cell, lengths=lengths))) == cell.ranks


@pytest.mark.parametrize("cell", one_of(3, ((cell,) for cell in CELLS.values())), ids=CELLS.keys())
def test_attention_as_a_stage_takes_ranks_without_tokens_too(cell: CellShape) -> None:
    whole = sample(cell, lengths=(5, 1), rows=2)
    sent = with_weights_sent(whole)
    for trial in (cut_at_attention(whole), sent, again_without_attention(sent)):
        assert len(right(trial)) == cell.ranks


def test_three_tensor_ranks_beside_a_ring_of_three() -> None:
    """Nine ranks, a number that the matrix of processes does not have."""
    documents = ((0, 3, 11), (0, 1))
    trial = sample(CellShape(tensor=3, ring=3), rows=2, documents=documents)
    assert len(right(trial)) == 9


@pytest.mark.parametrize("lengths", [(14,), LENGTHS, (5, 4, 3, 2)], ids=str)
@pytest.mark.parametrize(("heads", "kv_heads", "ranks"), [(4, 2, 2), (7, 7, 4), (4, 2, 4)])
def test_each_slice_exchanges_its_own_tokens_and_no_others(
    lengths: tuple[int, ...], heads: int, kv_heads: int, ranks: int
) -> None:
    """Gradients of keys and values are complete all the same: earlier slices keep theirs by head,
    and later ones leave there what they have for them."""
    model = with_heads(heads, kv_heads)
    reports = right(sample(CellShape(ulysses=ranks), model, lengths))
    shares = [deal_heads(heads, kv_heads, rank, ranks) for rank in range(ranks)]
    queries = [len(share.queries) * model.head_size for share in shares]
    widths = [q + 2 * len(share.keys) * model.head_size for q, share in zip(queries, shares)]
    for rank, report in enumerate(reports):
        own = [deal_sizes(length, ranks)[rank] for length in lengths]
        others = [length - mine for length, mine in zip(lengths, own)]
        expected = {
            "to_heads": [mine * (sum(widths) - widths[rank]) for mine in own],
            "to_tokens": [theirs * queries[rank] for theirs in others],
            "output_gradient_to_heads": [mine * (sum(queries) - queries[rank]) for mine in own],
            "gradients_to_tokens": [theirs * widths[rank] for theirs in others],
        }
        for way, elements in expected.items():
            order = elements if way.startswith("to_") else elements[::-1]
            found = report.exchanged[f"HeadExchange.{way}"]
            assert found == [count for count in order for _ in range(model.layers)]
