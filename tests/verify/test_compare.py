"""An error is measured for each parameter, and nothing that is wrong measures as small."""

from math import inf, nan

import pytest
import torch

from penstock.verify.compare import HeldGradient, Tolerance, difference, unequal_bits
from penstock.verify.oracle import Answer

pytestmark = pytest.mark.torch

RIGHT = Answer(
    2.0,
    {
        "large": torch.full((10, 10), 100.0, dtype=torch.float64),
        "small": torch.tensor([3.0, 4.0], dtype=torch.float64),
        "zero": torch.zeros(2, dtype=torch.float64),
    },
)
"""Norms 1000, 5 and 0; the floor is a millionth of the first."""


def _with(**changed: torch.Tensor) -> list[HeldGradient]:
    return _held({**RIGHT.gradients, **changed})


def _held(gradients: dict[str, torch.Tensor]) -> list[HeldGradient]:
    return [HeldGradient(name, gradient) for name, gradient in gradients.items()]


def test_the_same_numbers_have_no_error() -> None:
    found = difference(2.0, _with(), RIGHT)
    assert (found.loss, found.gradient) == (0.0, 0.0)
    assert found.within(Tolerance(0.0, 0.0))


def test_a_small_parameter_is_not_hidden_by_a_large_one() -> None:
    found = difference(2.0, _with(small=torch.tensor([3.0, 4.5], dtype=torch.float64)), RIGHT)
    assert (found.gradient, found.parameter) == (pytest.approx(0.1), "small")
    assert "5.4083" in found.reason
    assert "not 5" in found.reason


def test_what_should_be_zero_is_measured_against_the_whole_gradient() -> None:
    off = torch.tensor([1e-12, 0.0], dtype=torch.float64)
    found = difference(2.0, _with(zero=off), RIGHT)
    assert found.gradient == pytest.approx(1e-12 / (1e-6 * 1000), rel=1e-4)
    assert found.parameter == "zero"


def test_a_wrong_loss_is_an_error_of_its_own() -> None:
    found = difference(2.002, _with(), RIGHT)
    assert (found.loss, found.gradient) == (pytest.approx(1e-3), 0.0)
    assert not found.within(Tolerance(1e-5, 1e-5))


@pytest.mark.parametrize("loss", [nan, inf])
def test_a_loss_that_is_no_number_is_infinitely_wrong(loss: float) -> None:
    assert difference(loss, _with(), RIGHT).loss == inf


def test_a_gradient_that_is_no_number_is_infinitely_wrong() -> None:
    found = difference(2.0, _with(small=torch.tensor([3.0, nan])), RIGHT)
    assert (found.gradient, found.parameter) == (inf, "small")
    assert "1 of 2 elements are not numbers" in found.reason


def test_a_parameter_that_nobody_holds_is_named() -> None:
    without = [each for each in _with() if each.name != "zero"]
    found = difference(2.0, without, RIGHT)
    assert (found.gradient, found.parameter) == (inf, "zero")
    assert found.reason == "no process holds its gradient"


def test_a_parameter_that_does_not_exist_is_named() -> None:
    found = difference(2.0, [*_with(), HeldGradient("foreign", torch.zeros(1))], RIGHT)
    assert (found.gradient, found.parameter) == (inf, "foreign")


def test_a_gradient_of_another_size_is_named() -> None:
    found = difference(2.0, _with(small=torch.zeros(3)), RIGHT)
    assert (found.gradient, found.reason) == (inf, "its size is (3,), not (2,)")


def test_every_process_that_holds_a_parameter_has_to_be_right() -> None:
    found = difference(2.0, [*_with(), HeldGradient("small", torch.zeros(2))], RIGHT)
    assert (found.gradient, found.parameter) == (1.0, "small")


def test_one_bit_is_a_difference() -> None:
    one = torch.tensor([1.0, 2.0])
    next_to_it = torch.nextafter(one, torch.tensor(3.0))
    assert unequal_bits(_held({"a": one.clone()}), {"a": one}) == []
    assert unequal_bits(_held({"a": next_to_it}), {"a": one}) == ["a"]


def test_zero_has_another_bit_than_minus_zero() -> None:
    assert unequal_bits(_held({"a": torch.tensor([0.0])}), {"a": torch.tensor([-0.0])}) == ["a"]


def test_bits_of_a_parameter_that_one_side_lacks_are_unequal() -> None:
    a = torch.ones(1)
    assert unequal_bits(_held({"a": a, "b": a}), {"a": a}) == ["b"]
    assert unequal_bits(_held({"a": a}), {"a": a, "b": a}) == ["b"]


def test_parts_are_compared_with_their_part_of_the_whole() -> None:
    halves = [(slice(0, 5), slice(None)), (slice(5, 10), slice(None))]
    whole = RIGHT.gradients["large"]
    others = [each for each in _with() if each.name != "large"]
    parts = [HeldGradient("large", whole[half].clone(), half) for half in halves]
    assert difference(2.0, [*others, *parts], RIGHT).gradient == 0
    assert unequal_bits([*others, *parts], RIGHT.gradients) == []
    parts[1].gradient[0, 0] += 1
    assert difference(2.0, [*others, *parts], RIGHT).parameter == "large"
    assert unequal_bits([*others, *parts], RIGHT.gradients) == ["large"]


def test_a_part_that_nobody_holds_is_named() -> None:
    others = [each for each in _with() if each.name != "large"]
    half = (slice(0, 5), slice(None))
    part = HeldGradient("large", RIGHT.gradients["large"][half], half)
    found = difference(2.0, [*others, part], RIGHT)
    assert (found.gradient, found.parameter) == (inf, "large")
    assert found.reason == "no process holds 50 of the 100 elements"
    assert unequal_bits([*others, part], RIGHT.gradients) == ["large"]
