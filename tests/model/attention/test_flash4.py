"""What FlashAttention 4 is given and what becomes of its answers, with a stand-in for its kernels.

The stand-in computes the definition in 64 bits from tensors as the package takes them: token by
token, queries aligned with the last keys, documents by their cumulative lengths.
"""

import inspect
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from loops import each
from model.attention.dense import Case, Sliced, dense, relative
from penstock.errors import RunError
from penstock.model.attention import flash4, table
from penstock.model.attention.back_end import BackEnd
from penstock.model.attention.one_call import OneCall
from penstock.model.attention.packed import Packed
from penstock.model.attention.piece import Piece
from penstock.model.attention.tiled import Tiled

pytestmark = pytest.mark.torch


def _dense(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """[tokens, heads, size] of one document: output and log-sum-exp."""
    group = q.shape[1] // k.shape[1]
    heads = [tensor.repeat_interleave(group, 1).transpose(0, 1) for tensor in (k, v)]
    scores = q.transpose(0, 1) @ heads[0].mT / q.shape[2] ** 0.5
    if causal:
        after = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1 + len(k) - len(q))
        scores = scores.masked_fill(after, -torch.inf)
    return (scores.softmax(-1) @ heads[1]).transpose(0, 1), scores.logsumexp(-1)


def _ahead(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, return_lse: bool, **documents: Any
) -> tuple[Tensor, Tensor]:
    assert return_lse
    if not documents:
        outs, lses = zip(*(_dense(*row, causal) for row in zip(q, k, v)))
        return torch.stack(outs), torch.stack(lses)
    cuts = [documents[name][1:-1].tolist() for name in ("cu_seqlens_q", "cu_seqlens_k")]
    parts = [x.tensor_split(cut) for x, cut in zip((q, k, v), (cuts[0], cuts[1], cuts[1]))]
    assert documents["max_seqlen_q"] == max(map(len, parts[0]))
    assert documents["max_seqlen_k"] == max(map(len, parts[1]))
    outs, lses = zip(*(_dense(*document, causal) for document in zip(*parts)))
    return torch.cat(outs), torch.cat(lses, 1)


def _back(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, dout: Tensor, lse: Tensor, **options: Any
) -> None:
    """With the weights that follow from the log-sum-exp given, as a merged one wants it."""
    into = [options.pop(name) for name in ("dq", "dk", "dv")]
    assert all(tensor.is_contiguous() for tensor in (*into, lse))
    assert options.pop("deterministic") is False
    leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
    own, own_lse = _ahead(*leaves, return_lse=True, **options)
    share = (own_lse - lse).exp().detach().transpose(-2, -1).unsqueeze(-1)
    moved = (out - own).detach() * dout * share
    total = (own * dout * share).sum() - (moved.sum(-1).transpose(-2, -1) * own_lse).sum()
    for tensor, gradient in zip(into, torch.autograd.grad(total, leaves)):
        tensor.copy_(gradient)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def anything(q: Tensor, piece: Piece) -> bool:
        return True

    def whole(q: Tensor, piece: Piece) -> bool:
        return not piece.packed

    monkeypatch.setattr(flash4, "_kernels", lambda: (_ahead, _back))
    back_ends: tuple[BackEnd, ...] = (
        OneCall("flash4", whole, flash4.flash4_forward, flash4.flash4_backward),
        Packed(
            "flash4-documents",
            anything,
            flash4.flash4_packed_forward,
            flash4.flash4_packed_backward,
        ),
    )
    monkeypatch.setattr(table, "BACK_ENDS", back_ends)


DOCUMENTS = [((0,), (0,)), ((0, 3, 9, 10),), ((0, 12), (0, 5)), ((0, 6), (0, 6))]


@pytest.mark.usefixtures("stand_in")
@each("lengths", [(18,), (6, 5, 7), (1, 16, 1)])
@each("documents", DOCUMENTS)
def test_slices_with_their_past_are_the_whole(
    lengths: tuple[int, ...], documents: tuple[tuple[int, ...], ...]
) -> None:
    case = Case(lengths, documents, heads=4, kv_heads=2)
    sliced = Sliced(case)
    out, gradients = dense(case)
    for ours, exact in zip((sliced.out, *sliced.gradients()), (out, *gradients)):
        assert relative(ours, exact) <= 1e-12


@pytest.mark.usefixtures("stand_in")
def test_parts_are_merged_as_those_of_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Tiled(
        "parts", lambda q, piece: True, flash4.flash4_forward, flash4.flash4_backward, square=2
    )
    monkeypatch.setattr(table, "BACK_ENDS", (parts,))
    case = Case((6, 5, 7), ((0,), (0,)), heads=4, kv_heads=2)
    sliced = Sliced(case)
    out, gradients = dense(case)
    for ours, exact in zip((sliced.out, *sliced.gradients()), (out, *gradients)):
        assert relative(ours, exact) <= 1e-12


@pytest.mark.processes  # it looks for libraries when it is loaded
@pytest.mark.skipif(not flash4.has_flash4(), reason="needs flash-attn-4")
def test_the_package_takes_what_it_is_given() -> None:
    ahead, back = flash4._kernels()
    known = inspect.signature(ahead).parameters
    assert list(known)[:3] == ["q", "k", "v"]
    documents = {"cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", "causal"}
    assert documents | {"return_lse"} <= set(known)
    known = inspect.signature(back).parameters
    assert list(known)[:6] == ["q", "k", "v", "out", "dout", "lse"]
    assert documents | {"deterministic", "dq", "dk", "dv"} <= set(known)


def test_a_package_that_cannot_be_loaded_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flash4, "version", lambda package: "4.0.0")
    monkeypatch.setitem(sys.modules, "flash_attn.cute.interface", None)
    flash4._kernels.cache_clear()
    with pytest.raises(RunError, match=r"flash-attn-4 4\.0\.0 is installed, but cannot be loaded"):
        flash4._kernels()
