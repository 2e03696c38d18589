"""A step has the same bits in any process, whatever was computed there before."""

import pytest
import torch

from penstock.run.execute.matmul_kernels import settle_products
from penstock.run.launch.worker_pool import Crew
from penstock.schedules import build
from run.engine_jobs import trained_after_bfloat16
from run.jobs import trained
from run.plans import plan_of

pytestmark = pytest.mark.torch

SCHEDULE = build("1f1b", devices=4, microbatches=4)


def test_float32_has_the_same_bits_after_bfloat16(ranks: Crew) -> None:
    plan, narrow = (plan_of(SCHEDULE, dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
    before = ranks.run(trained, plan, 1, 1)
    after = ranks.run(trained_after_bfloat16, plan, narrow)
    for first, second in zip(before, after):
        assert first.outcomes == second.outcomes
        for name, value in first.held.items():
            assert torch.equal(value, second.held[name]), name


@pytest.mark.parametrize("usual", [torch.float32, torch.float64])
def test_the_usual_kernels_come_back(usual: torch.dtype) -> None:
    torch._C._set_mkldnn_enabled(False)
    settle_products(usual)
    assert torch._C._get_mkldnn_enabled()


def test_bfloat16_is_multiplied_without_a_word_of_what_the_processor_lacks() -> None:
    """Warnings are errors here."""
    settle_products(torch.bfloat16)
    a = torch.randn(24, 16).bfloat16()
    settled = torch._C._get_mkldnn_enabled()
    assert torch.nn.functional.linear(a, a).isfinite().all()
    assert torch._C._get_mkldnn_enabled() == settled
