"""Fused kernels are taken where they can be built, and nowhere else."""

import pytest
import torch

from penstock.model.kernels import choice
from penstock.model.kernels.choice import PLAIN_KERNELS, fuses, fusible, has_triton

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_cpu_keeps_the_kernels_of_pytorch(dtype: torch.dtype) -> None:
    assert not fusible(torch.empty(2, dtype=dtype))


def test_a_variable_of_the_environment_turns_kernels_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "has_triton", lambda: True)
    on_gpu = torch.device("cuda"), torch.bfloat16
    assert fuses(*on_gpu)
    monkeypatch.setenv(PLAIN_KERNELS, "1")
    assert not fuses(*on_gpu)


def test_without_a_compiler_there_are_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    has_triton.cache_clear()
    monkeypatch.setattr(choice, "which", lambda name: None)
    assert not has_triton()
    has_triton.cache_clear()
