"""Router and experts against plain arithmetic under autograd, in one process and over ranks."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from model.parallel.threads import run_ranks
from model.samples import EXACT, random_weights, relative
from penstock.arch.config import ModelConfig
from penstock.arch.mixture import ExpertMixture
from penstock.arch.parameter_layout import lay_out
from penstock.arch.parameters import own_experts, shapes_of
from penstock.model.layers.expert_loads import auxiliary_loss, loads_of, slope_of
from penstock.model.layers.expert_mlp import RoutedMlp
from penstock.model.layers.linear import Queue, add_products
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import result_of
from penstock.model.parallel.group import RankGroup, Work
from penstock.model.stages.weights import Weights
from penstock.verify.plain_experts import ReferenceExperts, balance_loss

pytestmark = pytest.mark.torch

TOKENS = 11
MIXTURES = {
    "renormalised": ExpertMixture(6, 2, balance=0.3),
    "as they are": ExpertMixture(5, 3, renormalised=False, balance=0.3, family="qwen3_moe"),
    "one": ExpertMixture(4, 1, balance=0.3),
    "all": ExpertMixture(3, 3, balance=0.3),
}


def config_of(mixture: ExpertMixture) -> ModelConfig:
    return ModelConfig(1, 12, 10, 2, 1, 6, 9, mixture=mixture)


class Weighed:
    """Experts with weights: all of them, or those of one rank."""

    def __init__(
        self, mixture: ExpertMixture, weights: Weights, group: RankGroup | None = None
    ) -> None:
        self.mlp, self.weights = RoutedMlp(mixture, group), weights
        self.values, self.gradients = (
            Views(weights.layout, flat) for flat in (weights.value, weights.grad)
        )

    def run(self, x: Tensor, dz: Tensor, slope: Tensor | None) -> Work[tuple[Tensor, Tensor]]:
        """Output and gradient of the input; gradients of weights are added."""
        own, d_own = (self.mlp.views(views, "") for views in (self.values, self.gradients))
        z, saved = yield from self.mlp.forward(own, x)
        if slope is None:
            slope = self.slope(loads_of(saved.routed))
        queue = Queue()
        dx = yield from self.mlp.backward(own, d_own, saved, x, dz, slope, queue)
        add_products(self.gradients.matrices, queue)
        return z, dx

    def slope(self, loads: Tensor) -> Tensor:
        return slope_of(loads, self.mlp.mixture).mul_(self.mlp.mixture.balance)


def weights_of(mixture: ExpertMixture, dtype: torch.dtype = torch.float64) -> Weights:
    record = config_of(mixture).mlp
    return random_weights(shapes_of({each.name: each for each in record.parameters}), dtype)


def expected(
    mixture: ExpertMixture, weights: Weights, x: Tensor, dz: Tensor
) -> tuple[Tensor, Tensor, dict[str, Tensor], Tensor]:
    """Output, gradients and auxiliary loss of the plain experts."""
    plain = ReferenceExperts(config_of(mixture), mixture)
    block = next(iter(weights.layout.parts)).partition(".")[0] + "."
    leaves = {
        name.removeprefix(block): value.clone().requires_grad_()
        for name, value in weights.named(weights.value).items()
    }
    x = x.clone().requires_grad_()
    z = functional_call(plain, leaves, (x,))
    balance = balance_loss(mixture, [plain.scores])
    ((z * dz).sum() + mixture.balance * balance).backward()  # type: ignore[no-untyped-call]
    found = {block + name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    assert x.grad is not None
    return z.detach(), x.grad, found, balance.detach()


@pytest.mark.parametrize("mixture", MIXTURES.values(), ids=MIXTURES.keys())
def test_output_and_every_gradient_are_those_of_autograd(mixture: ExpertMixture) -> None:
    torch.manual_seed(3)
    weights = weights_of(mixture)
    x, dz = torch.randn(2, TOKENS, 12, dtype=torch.float64)
    z, dx = result_of(Weighed(mixture, weights).run(x, dz, None))
    right, right_dx, gradients, _ = expected(mixture, weights, x, dz)
    assert relative(z, right) <= EXACT
    assert relative(dx, right_dx) <= EXACT
    found = weights.named(weights.grad)
    assert {
        name for name, grad in gradients.items() if relative(found[name], grad) > EXACT
    } == set()


@pytest.mark.parametrize("mixture", MIXTURES.values(), ids=MIXTURES.keys())
def test_the_auxiliary_loss_is_that_of_all_rows(mixture: ExpertMixture) -> None:
    torch.manual_seed(4)
    weights = weights_of(mixture)
    x, dz = torch.randn(2, TOKENS, 12, dtype=torch.float64)
    own = Weighed(mixture, weights)
    _, saved = result_of(own.mlp.forward(own.mlp.views(own.values, ""), x))
    found = auxiliary_loss(loads_of(saved.routed), mixture)
    assert relative(found, expected(mixture, weights, x, dz)[3]) <= EXACT


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("name", ["renormalised", "as they are"])
def test_ranks_that_share_experts_compute_the_same(name: str, ranks: int) -> None:
    """Each has tokens of its own, one of them very few, and gradients of its experts alone."""
    torch.manual_seed(5)
    mixture = MIXTURES[name]
    weights, sizes = weights_of(mixture), [TOKENS, 1, 4][:ranks]
    x, dz = torch.randn(2, sum(sizes), 12, dtype=torch.float64)
    whole = Weighed(mixture, weights)
    loads = loads_of(result_of(whole.mlp.forward(whole.mlp.views(whole.values, ""), x))[1].routed)
    right, right_dx, gradients, _ = expected(mixture, weights, x, dz)
    own = [_share(mixture, weights, rank, ranks) for rank in range(ranks)]

    def work(group: RankGroup) -> Work[tuple[Tensor, Tensor]]:
        experts = Weighed(mixture, own[group.index], group)
        parts = (each.split(sizes)[group.index] for each in (x, dz))
        return (yield from experts.run(*parts, whole.slope(loads)))

    found = run_ranks(ranks, work)
    for rows, expected_rows in zip(zip(*found), (right, right_dx)):
        assert relative(torch.cat(rows), expected_rows) <= EXACT
    router = next(iter(weights.layout.parts))
    total = sum(share.named(share.grad)[router] for share in own)
    assert relative(total, gradients[router]) <= EXACT
    held = [name for share in own for name in [*share.layout.parts][1:]]
    assert sorted(held) == sorted([*weights.layout.parts][1:])
    for share in own:
        for part, grad in [*share.named(share.grad).items()][1:]:
            assert relative(grad, gradients[part]) <= EXACT, part


def _share(mixture: ExpertMixture, weights: Weights, rank: int, ranks: int) -> Weights:
    """The weights of one of several ranks that share the experts."""
    named = {each.name: each for each in config_of(mixture).mlp.parameters}
    layout = lay_out(own_experts(named, rank, ranks))
    wide, cpu = torch.float64, torch.device("cpu")
    share = Weights.empty(layout, dtype=wide, main=wide, device=cpu)
    values = weights.named(weights.value)
    for name, value in share.named(share.value).items():
        value.copy_(values[name])
    return share


def test_an_expert_that_nobody_chose_has_no_gradient_and_breaks_nothing() -> None:
    mixture = replace(MIXTURES["one"], balance=0.0)
    weights = weights_of(mixture)
    router = weights.named(weights.value)[next(iter(weights.layout.parts))]
    router.zero_()
    router[2] = 1.0
    x = torch.rand(TOKENS, 12, dtype=torch.float64) + 1
    z, _ = result_of(Weighed(mixture, weights).run(x, torch.ones_like(x), None))
    right, _, _, _ = expected(mixture, weights, x, torch.ones_like(x))
    assert relative(z, right) <= EXACT
    grads = weights.named(weights.grad)
    used = {name for name, grad in grads.items() if ".experts." in name and bool(grad.any())}
    assert {name.split(".experts.")[1][0] for name in used} == {"2"}
