"""Any module is a stage: its gradients are those of plain autograd, whole or split."""

import pytest
import torch
from torch import Tensor, nn

from penstock.core.schedule import Schedule
from penstock.data.batch import Microbatch
from penstock.errors import RunError
from penstock.model.attention.piece import pieces_of
from penstock.model.stages.module_stage import ModuleStage
from penstock.model.stages.split_autograd import backward_to_input, backward_to_weights
from penstock.model.stages.value_tree import Form
from penstock.run.launch.worker_pool import Crew
from penstock.schedules import build
from penstock.transform import recompute_all
from run.module_jobs import Middle, model, pieces, plain, run_schedule, summed_loss

pytestmark = pytest.mark.torch


SCHEDULES = {
    "full backward": build("1f1b", devices=2, microbatches=4),
    "split backward": build("zb-h1", devices=2, microbatches=4),
    "several stages": build("interleaved", devices=2, microbatches=4, chunks=2),
    "several stages, split": build("zb-v", devices=2, microbatches=4),
    "recompute": recompute_all(build("1f1b", devices=2, microbatches=4)),
    "recompute, split": recompute_all(build("zb-h1", devices=2, microbatches=4)),
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_a_run_over_two_ranks_equals_plain_autograd(pair: Crew, schedule: Schedule) -> None:
    loss, expected = plain(schedule.shape.stages, 4)
    parts = pair.run(run_schedule, schedule)
    found = parts[0][1] | parts[1][1]
    assert sum(part[0] for part in parts) == pytest.approx(loss, rel=1e-12)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-11, atol=1e-14, msg=name)


class Shortened(nn.Module):
    """Gives fewer tokens where a microbatch begins with an odd number."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        odd = bool(x[0, 0] % 2)
        return x * 1.0, x[:, :1] * 1.0 if odd else x * 1.0


def test_other_sizes_than_those_that_room_was_made_for_are_refused() -> None:
    x = torch.arange(6.0).view(1, 6)
    stage = ModuleStage(Shortened(), given=Form.of(Shortened()(x)))
    even, odd = (
        pieces_of(mb, Microbatch(each, each, ((0,),)), (6,), 1.0)[0]
        for mb, each in enumerate((x, x + 1))
    )
    stage.forward(None, even, None, None)
    with pytest.raises(RunError, match=r"1, 1\] of float32\) for microbatch 1, but it gave .*1, 6"):
        stage.forward(None, odd, None, None)


def test_the_first_pass_leaves_the_weights_of_products_to_the_second() -> None:
    module, x = model(3)[1], torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    out = module(x)
    _, forks = backward_to_input([out], [torch.ones_like(out)], [x], module.parameters())
    at_once = {name for name, p in module.named_parameters() if p.grad is not None}
    assert at_once == {"first.weight", "first.bias"}  # used twice: the forks are not their own
    backward_to_weights(forks)
    done = {name for name, p in module.named_parameters() if p.grad is not None}
    assert done == at_once | {"norm.weight", "shift"}


def test_the_first_pass_computes_no_product_of_the_second() -> None:
    module = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 6))
    x = torch.randn(3, 6, requires_grad=True)
    out = module(x)
    with torch.profiler.profile(acc_events=True) as first:
        _, forks = backward_to_input([out], [torch.ones_like(out)], [x], module.parameters())
    with torch.profiler.profile(acc_events=True) as second:
        backward_to_weights(forks)
    products = [
        sum(event.count for event in found.key_averages() if event.key == "aten::mm")
        for found in (first, second)
    ]
    assert products == [2, 2]


def test_random_numbers_are_the_same_when_a_forward_is_run_again() -> None:
    module = Middle().double()
    module.dropout.p = 0.5
    stage, piece = ModuleStage(module), pieces(1)[0]
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    out, light, _ = stage.forward_light(None, piece, x, None)
    before = torch.get_rng_state()
    _, again = stage.recompute(None, piece, light, None)
    assert torch.equal(again, out)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_output_that_ignores_the_input_gives_a_gradient_of_zero() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.value = nn.Parameter(torch.ones(2, 5, 6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.value * 2

    stage, piece, x = ModuleStage(Constant()), pieces(1)[0], torch.ones(2, 5, 6)
    for backward in (stage.backward, stage.input_gradient):
        _, act, _ = stage.forward(None, piece, x, None)
        g, _, _, _ = backward(None, None, piece, act, torch.ones(2, 5, 6), None, None)
        assert g is not None
        assert not g.any()
    assert stage.module.value.grad is not None
    assert torch.equal(stage.module.value.grad, torch.full((2, 5, 6), 4.0))


def test_a_first_stage_that_is_frozen_as_a_whole_has_no_backward() -> None:
    stage, piece = ModuleStage(model(2)[0].requires_grad_(False)), pieces(1)[0]
    for backward in (stage.backward, stage.input_gradient):
        out, act, _ = stage.forward(None, piece, None, None)
        g, _, stash, _ = backward(None, None, piece, act, torch.ones_like(out), None, None)
        assert g is None
        if stash is not None:
            stage.weight_gradient(None, piece, stash)


@pytest.mark.parametrize("split", [False, True])
def test_a_loss_stays_without_the_graph_behind_it(split: bool) -> None:
    stage, piece = ModuleStage(model(2)[1], summed_loss), pieces(1)[0]
    out, act, _ = stage.forward(None, piece, torch.randn(2, 5, 6, dtype=torch.float64), None)
    assert out is None
    backward = stage.input_gradient if split else stage.backward
    loss = backward(None, None, piece, act, None, None, None)[3]
    assert loss is not None
    assert loss.grad_fn is None


def test_a_loss_may_be_a_view() -> None:
    def seen(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return summed_loss(out, labels).reshape(1)[0]

    gradients = []
    for loss in (summed_loss, seen):
        stage, piece = ModuleStage(model(2)[1], loss), pieces(1)[0]
        x = torch.ones(2, 5, 6, dtype=torch.float64)
        _, act, _ = stage.forward(None, piece, x, None)
        gradients.append(stage.backward(None, None, piece, act, None, None, None)[0])
    assert gradients[0] is not None
    assert gradients[1] is not None
    assert torch.equal(gradients[0], gradients[1])


def test_a_slice_is_refused_by_name() -> None:
    words = torch.zeros(1, 6, dtype=torch.int64)
    piece = pieces_of(3, Microbatch(words, words, ((0,),)), (4, 2), 1.0)[0]
    with pytest.raises(RunError, match="microbatch 3 comes in 2 slices") as refused:
        ModuleStage(Middle(), summed_loss).forward(None, piece, None, None)
    assert "schedule without slices" in refused.value.hint
