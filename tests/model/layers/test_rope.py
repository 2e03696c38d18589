import pytest
import torch

from penstock.arch.config import ModelConfig
from penstock.arch.presets import model
from penstock.arch.rope_scaling import RopeScaling
from penstock.errors import ShapeError
from penstock.model.layers.rope import frequencies, rope_tables, rotate, rotate_back

pytestmark = pytest.mark.torch


def small(**changes: object) -> ModelConfig:
    return ModelConfig(1, 32, 8, 2, 1, 16, 8, **changes)  # type: ignore[arg-type]


def test_a_pair_of_elements_turns_by_position_times_frequency() -> None:
    """theta 10000 over 4 elements: pairs (0, 2) and (1, 3), turned by 1 and 1/100 per position."""
    config = ModelConfig(1, 8, 8, 2, 1, 4, 8)
    cos, sin = rope_tables(config, range(3, 5), torch.float64, "cpu")
    x = torch.eye(4, dtype=torch.float64).view(4, 1, 1, 4).expand(4, 1, 2, 4)
    turned = rotate(x, cos, sin)
    angles = torch.tensor([[3.0, 0.03], [4.0, 0.04]], dtype=torch.float64)
    assert torch.allclose(turned[0, 0, :, 0], angles[:, 0].cos())
    assert torch.allclose(turned[0, 0, :, 2], angles[:, 0].sin())
    assert torch.allclose(turned[3, 0, :, 3], angles[:, 1].cos())
    assert torch.allclose(turned[3, 0, :, 1], -angles[:, 1].sin())


def test_scores_depend_on_the_distance_alone() -> None:
    config = small(rope_scaling=RopeScaling("linear", 3.0))
    q, k = torch.randn(2, 1, 1, 1, 16, dtype=torch.float64)

    def score(at: int, other: int) -> float:
        one, two = (rope_tables(config, range(p, p + 1), torch.float64, "cpu") for p in (at, other))
        return float((rotate(q, *one) * rotate(k, *two)).sum())

    assert score(7, 2) == pytest.approx(score(1005, 1000), abs=1e-9)
    assert score(7, 2) != pytest.approx(score(7, 3), abs=1e-6)


def test_tables_of_a_slice_are_a_part_of_those_of_the_sequence() -> None:
    config = small(rope_scaling=RopeScaling("yarn", 4.0, 64))
    whole = rope_tables(config, range(40), torch.float32, "cpu")
    part = rope_tables(config, range(11, 29), torch.float32, "cpu")
    assert all(torch.equal(a[11:29], b) for a, b in zip(whole, part))


@pytest.mark.long
@pytest.mark.parametrize("scaling", [None, RopeScaling("yarn", 8.0, 32)])
def test_the_gradient_is_that_of_the_formula_and_keeps_only_the_tables(
    scaling: RopeScaling | None,
) -> None:
    config = small(rope_scaling=scaling)
    cos, sin = rope_tables(config, range(5, 11), torch.float64, "cpu")
    x = torch.randn(2, 3, 6, 16, dtype=torch.float64, requires_grad=True)
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        out = rotate(x, cos, sin)
    assert {t.data_ptr() for t in kept} == {cos.data_ptr(), sin.data_ptr()}
    assert torch.autograd.gradcheck(lambda y: rotate(y, cos, sin), (x,))
    g = torch.randn_like(out)
    (dx,) = torch.autograd.grad(out, x, g)
    assert torch.equal(dx, rotate_back(g, cos, sin))


def test_a_model_in_64_bits_gets_tables_in_64_bits() -> None:
    config = small(rope_theta=500000.0)
    fine, _ = rope_tables(config, range(100_000, 100_001), torch.float64, "cpu")
    coarse, _ = rope_tables(config, range(100_000, 100_001), torch.float32, "cpu")
    exact = torch.cos(100_000 * frequencies(config, torch.float64))
    assert torch.equal(fine[0, :8], exact)
    assert 1e-9 < (fine - coarse).abs().max() < 0.05
    half, _ = rope_tables(config, range(100_000, 100_001), torch.bfloat16, "cpu")
    assert torch.equal(half, coarse.to(torch.bfloat16))


def test_llama3_keeps_short_wavelengths_and_stretches_long_ones() -> None:
    scaled = model("llama3.1-8b")
    plain = frequencies(model("llama3-8b"), torch.float64)
    ratio = plain / frequencies(scaled, torch.float64)
    turns = 8192 * plain / (2 * torch.pi)
    assert torch.all(ratio[turns > 4] == 1)
    assert torch.allclose(ratio[turns < 1], torch.tensor(8.0, dtype=torch.float64))
    between = ratio[(turns <= 4) & (turns >= 1)]
    assert len(between) > 2
    assert torch.all(between.diff() > 0)


def test_yarn_scales_queries_and_keys_as_the_paper_says() -> None:
    plain, _ = rope_tables(
        small(rope_scaling=RopeScaling("yarn", 1.0, 64)), range(1), torch.float64, "cpu"
    )
    scaled, _ = rope_tables(
        small(rope_scaling=RopeScaling("yarn", 16.0, 64)), range(1), torch.float64, "cpu"
    )
    assert plain[0, 0] == 1
    assert scaled[0, 0] == pytest.approx(0.1 * 2.772588722239781 + 1)  # ln 16


@pytest.mark.parametrize(
    ("config", "longest", "message"),
    [
        (
            small(max_positions=48, rope_scaling=RopeScaling("dynamic", 2.0)),
            48,
            "exceeds the 48 positions up to which dynamic rope scaling",
        ),
    ],
)
def test_positions_that_would_need_other_frequencies_are_refused(
    config: ModelConfig, longest: int, message: str
) -> None:
    cos, _ = rope_tables(config, range(longest), torch.float32, "cpu")
    assert cos.shape == (longest, 16)
    with pytest.raises(ShapeError, match=message):
        rope_tables(config, range(longest, longest + 1), torch.float32, "cpu")
