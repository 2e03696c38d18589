"""The parameters of a stage are views of flat buffers."""

import pytest
import torch

from model.samples import CPU, random_weights
from penstock.arch.layers.parameter import Parameter
from penstock.arch.ownership import Ownership
from penstock.arch.parameter_layout import lay_out
from penstock.model.stages.weights import Weights

pytestmark = pytest.mark.torch

SHAPES = {
    "norm.weight": (4,),
    "q.weight": (6, 4),
    "k.weight": (2, 4),
    "q.bias": (6,),
    "k.bias": (2,),
    "out.weight": (4, 6),
}
LAYOUT = lay_out({name: Parameter(name, shape) for name, shape in SHAPES.items()})


def test_every_element_of_the_buffers_belongs_to_one_parameter() -> None:
    weights = random_weights(SHAPES)
    for number, tensor in enumerate(weights.named(weights.main).values()):
        tensor.fill_(number)
    expected = [float(n) for n, count in enumerate((4, 24, 8, 6, 2, 24)) for _ in range(count)]
    assert weights.main.tolist() == expected
    assert {name: tuple(t.shape) for name, t in weights.named(weights.grad).items()} == SHAPES


def test_what_is_computed_with_is_what_is_updated_where_both_have_one_type() -> None:
    weights = Weights.empty(LAYOUT, dtype=torch.float32, main=torch.float32, device=CPU)
    assert weights.value is weights.main


def test_narrow_values_follow_the_main_weights_when_they_are_published() -> None:
    weights = Weights.empty(LAYOUT, dtype=torch.bfloat16, main=torch.float32, device=CPU)
    norm = weights.named(weights.value)["norm.weight"]
    weights.main.fill_(1 + 2**-12)
    assert norm.tolist() == [0.0] * 4
    weights.publish()
    assert norm.tolist() == [1.0] * 4
    assert (weights.value.dtype, weights.grad.dtype) == (torch.bfloat16, torch.float32)


def test_a_rank_keeps_main_weights_of_what_it_owns_and_publishes_these() -> None:
    own = Ownership(LAYOUT, 1, 4, apart=("out.weight",))
    weights = Weights.empty(LAYOUT, dtype=torch.bfloat16, main=torch.float32, device=CPU, own=own)
    assert (len(weights.main), len(weights.value), len(weights.grad)) == (17, 68, 68)
    weights.main.copy_(torch.arange(1.0, 18.0))
    weights.publish()
    assert weights.value.nonzero().flatten().tolist() == [*range(11, 22), *range(50, 56)]
    for flat in (weights.main, weights.value):
        found = {name: part.tolist() for name, part in weights.owned(flat).items() if len(part)}
        assert found == {
            "q.weight": [float(n) for n in range(1, 12)],
            "out.weight": [float(n) for n in range(12, 18)],
        }


def test_values_that_are_main_weights_are_whole() -> None:
    own = Ownership(LAYOUT, 1, 4)
    weights = Weights.empty(LAYOUT, dtype=torch.float32, main=torch.float32, device=CPU, own=own)
    assert weights.value is weights.main
    assert len(weights.main) == 68
