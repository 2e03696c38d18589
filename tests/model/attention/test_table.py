"""Which back end serves what."""

import pytest
import torch
from torch import Tensor

from model.attention.dense import Case
from penstock.arch.attention_rule import AttentionRule
from penstock.errors import RunError
from penstock.model.attention import aten, table
from penstock.model.attention.packed import Packed
from penstock.model.attention.table import (
    BACK_ENDS,
    back_end_for,
    parts_back_end_for,
    smallest_part,
)

pytestmark = pytest.mark.torch


def queries(case: Case) -> Tensor:
    return case.inputs()[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_cpu_has_a_kernel_for_full_precision(dtype: torch.dtype) -> None:
    case = Case((4, 4), dtype=dtype)
    assert back_end_for(queries(case), case.pieces()[1]).name == "cpu"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_low_precision_the_cpu_leaves_triangles_whole(dtype: torch.dtype) -> None:
    case = Case((4, 4), dtype=dtype)
    assert back_end_for(queries(case), case.pieces()[1]).name == "cpu-low"


def test_names_are_unique_and_the_last_one_serves_every_device() -> None:
    names = [back_end.name for back_end in BACK_ENDS]
    assert len(set(names)) == len(names)
    case = Case((4,), dtype=torch.float32)
    abroad = queries(case).to("meta")
    assert back_end_for(abroad, case.pieces()[0]).name == names[-1] == "plain"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernels_that_would_give_no_numbers_refuse_full_precision(dtype: torch.dtype) -> None:
    """Whatever the device: the type is looked at before the device is asked what it can do."""
    case = Case((64,), dtype=dtype)
    fused = [each for each in BACK_ENDS if each.name.startswith(("cudnn", "flash"))]
    assert len(fused) == 5
    assert not any(each.serves(queries(case), case.pieces()[0]) for each in fused)


def test_parts_are_given_to_a_kernel_that_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one for whole rows comes first."""
    rows = Packed("rows", lambda q, piece: True, aten.flash_forward, aten.flash_backward)
    monkeypatch.setattr(table, "BACK_ENDS", (rows, *BACK_ENDS))
    case = Case((4, 4))
    assert back_end_for(queries(case), case.pieces()[1]) is rows
    assert parts_back_end_for(queries(case), case.pieces()[1]).name == "cpu"


def test_parts_of_whole_numbers_are_refused() -> None:
    case = Case((4,), dtype=torch.int64)
    with pytest.raises(RunError, match=r"no attention is known for torch\.int64 on cpu"):
        parts_back_end_for(queries(case), case.pieces()[0])


def test_windows_are_given_to_a_kernel_that_knows_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for whole rows would not see the window."""
    rows = Packed("rows", lambda q, piece: True, aten.flash_forward, aten.flash_backward)
    monkeypatch.setattr(table, "BACK_ENDS", (rows, *BACK_ENDS))
    case = Case((4, 4))
    found = back_end_for(queries(case), case.pieces()[1], AttentionRule(window=3))
    assert found.name == "cpu"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_scores_with_a_cap_are_plain_products_everywhere(device: str, dtype: torch.dtype) -> None:
    case = Case((4, 4), dtype=dtype)
    for choose in (back_end_for, parts_back_end_for):
        found = choose(queries(case).to(device), case.pieces()[1], AttentionRule(cap=2.0))
        assert found.name == "plain-capped"


def test_short_windows_are_given_to_a_kernel_that_knows_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And long ones too, where only plain products are given parts."""
    monkeypatch.setattr(table, "_with_flash", lambda q, piece: True)
    case, rule = Case((4, 4)), AttentionRule(window=3)
    q, piece = queries(case), case.pieces()[1]
    assert back_end_for(q, piece, rule) is table.FLASH
    assert back_end_for(q, piece, AttentionRule(window=table.LONG_WINDOW)).name == "cpu"
    assert back_end_for(q, piece, AttentionRule(window=3, cap=2.0)).name == "plain-capped"
    assert parts_back_end_for(q, piece, rule).name == "cpu"
    monkeypatch.setattr(table, "BACK_ENDS", (BACK_ENDS[-1],))
    assert back_end_for(q, piece, AttentionRule(window=table.LONG_WINDOW)) is table.FLASH


def test_the_smallest_part_of_a_window_decides_whether_a_kernel_is_large_enough() -> None:
    whole, last = Case((300,)).pieces()[0], Case((200, 130)).pieces()[1]
    assert smallest_part(whole, 100) == 99
    assert smallest_part(last, 100) == 30
