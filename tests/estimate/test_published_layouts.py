"""Worked examples and rules of the sweep of arXiv:2311.05610, as rows of an estimate.

Its authors give MFU = tokens (6 N + 12 L h s)/(seconds x GPUs x peak), with N = L(4 h^2 + 3 h f)
+ 2 V h, which their published steps reproduce to 0.2 %. Section 6 is the worked examples, section 7
what must hold: 7.1 is the utilisation of section 6; 7.5, times and memory of one's own GPU, is
tested with profiles (tests/profiling); 7.6, more memory and fewer kernels, with plans
(tests/planner).
"""

from fractions import Fraction
from typing import Any

import pytest

from estimate.equal_stages import FreeStep
from estimate.layouts import LLAMA_13B, LLAMA_65B, row
from penstock.estimate.answer import answer_row
from penstock.estimate.request import layout_from
from penstock.schedules import build
from penstock.sim import simulate

PUBLISHED: dict[str, tuple[dict[str, Any], tuple[int, int], float, float]] = {
    "13b": (row(), (64, 32), 26.54, 0.705),
    "65b": (
        row(model=LLAMA_65B, cluster="a100-80:128", mesh="tensor=2,pipeline=4"),
        *((16, 128), 79.31, 0.5526),
    ),
}
"""A row, replicas and microbatches, seconds of a step, and its utilisation."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_section_6_an_answer_has_the_published_utilisation_at_the_published_step(name: str) -> None:
    given, counts, seconds, utilisation = PUBLISHED[name]
    found = answer_row(given)
    assert (found["replicas"], found["microbatches"]) == counts
    at_their_step = found["flops_utilisation"] * found["step_seconds"] / seconds
    assert at_their_step == pytest.approx(utilisation, rel=0.002)


def test_section_6_matrices_are_counted_as_published() -> None:
    model = layout_from(row()).model
    matrices = 40 * (4 * 5120**2 + 3 * 5120 * 13824) + 2 * 128000 * 5120
    assert matrices == pytest.approx(13.998e9, rel=1e-4)
    norms = (2 * 40 + 1) * 5120
    assert model.parameters == matrices + norms


@pytest.mark.parametrize("name", PUBLISHED)
def test_section_6_published_steps_take_up_to_a_quarter_longer_than_estimated(name: str) -> None:
    """No constant is fitted to them: docs/concepts/estimate.md says how far they are off."""
    given, _, seconds, _ = PUBLISHED[name]
    assert 0.8 < answer_row(given)["step_seconds"] / seconds < 1


@pytest.mark.parametrize(("p", "m"), [(4, 8), (2, 8), (4, 128), (8, 16)])
def test_section_7_4_the_bubble_is_p_less_1_of_m_and_p_less_1(p: int, m: int) -> None:
    """(p - 1)/(m + p - 1) of the step: exactly at equal times, and in an estimate where stages are
    nearly equal and nothing is waited for."""
    bubble = Fraction(p - 1, m + p - 1)
    units = simulate(build("1f1b", devices=p, microbatches=m))
    assert units.bubble_makespan == bubble
    found = FreeStep.of(p, m)
    assert 1 - m * found.work("FB") / found.seconds == pytest.approx(float(bubble), abs=0.001)


def test_a_layer_keeps_six_bytes_of_its_mlp_where_others_keep_eight() -> None:
    """Published: 16 h + 8 f bytes of a token in a layer with FlashAttention. Here the product of
    gate and input is kept once, and a number of 32 bits for each head: 16 h + 6 f + 4 a."""
    model = layout_from(row(model=LLAMA_13B)).model
    assert model.saved_bytes + model.kv_bytes == 16 * 5120 + 6 * 13824 + 4 * 40
