"""How a step ends: gradients of replicas summed beside the work, tied weights, the norm."""

from math import sqrt

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from model.samples import random_weights
from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.core.schedule import Schedule
from penstock.errors import RunError
from penstock.model.stages.weights import Weights
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.launch.worker_pool import Crew
from penstock.run.observe.memory_meter import LiveBytes
from penstock.run.step.optimizer import AdamW, make_optimizer
from penstock.run.step.outcome import Totals
from penstock.run.step.sharding import ReplicatedOptimizer
from penstock.run.step.stage_end import NORM_PART, Rate, StageEnd, square_sum
from penstock.schedules import build
from run.jobs import reduced, trained
from run.plans import plan_of, tied

pytestmark = pytest.mark.torch

SIZES = {EMBEDDING: (5, 3), HEAD: (5, 3), "other.weight": (2, 2)}


def end_of(
    weights: Weights, names: dict[str, int], *, shared: bool = False, clip: float = 0.0
) -> StageEnd:
    optimizer = make_optimizer(AdamW(weight_decay=0.0), weights)
    rate = Rate(learning_rate=0.1)
    sharding = ReplicatedOptimizer()
    return StageEnd(
        weights,
        Mesh(Grid()),
        names,
        shared,
        optimizer,
        rate,
        clip,
        lambda: (),
        sharding,
        weights.grad,
    )


@pytest.mark.parametrize(
    "schedule",
    [
        build("interleaved", devices=2, microbatches=2, chunks=2),
        build("zb-v", devices=2, microbatches=4),
        build("dualpipev", devices=2, microbatches=4),
    ],
    ids=["whole", "split", "braided"],
)
def test_a_sum_over_replicas_begins_before_the_lane_ends(ranks: Crew, schedule: Schedule) -> None:
    for found in ranks.run(reduced, plan_of(schedule, dtype=torch.float32)):
        sums = [number for number, (op, _) in enumerate(found.calls) if "Z" in op]
        assert len(sums) == 2
        assert {stream for op, stream in found.calls if "Z" in op} == {"collective"}
        assert not [op for op in found.main if "Z" in op]  # the main thread goes on meanwhile
        after = [op for op, _ in found.calls[sums[0] :] if op[1] in "FBIW"]
        assert after  # other work follows the first sum
        for number in sums:
            stage = found.calls[number][0].split("Z")[0]
            rest = [op for op, _ in found.calls[number:]]
            assert not [op for op in rest if op.startswith((f"{stage}B", f"{stage}W"))]


def test_replicas_have_the_same_gradients_after_a_step(ranks: Crew) -> None:
    schedule = build("1f1b", devices=2, microbatches=2)
    first, second, *others = ranks.run(reduced, plan_of(schedule, dtype=torch.float32))
    for one, copy in zip((first, second), others):
        assert one.gradients.keys() == copy.gradients.keys()
        assert all(torch.equal(one.gradients[name], copy.gradients[name]) for name in one.gradients)


@pytest.mark.parametrize("name", ["1f1b", "zb-v"])
def test_tied_weights_stay_equal_wherever_their_ends_are(ranks: Crew, name: str) -> None:
    plan = tied(plan_of(build(name, devices=4, microbatches=8), dtype=torch.float32))
    found = ranks.run(trained, plan, 1, 2)
    alone = tied(plan_of(build("1f1b", devices=1, microbatches=8), dtype=torch.float32))
    right = trained_alone(alone)
    assert [outcome.loss for outcome in found[0].outcomes] == right


def trained_alone(plan: object) -> list[float]:
    """Losses of the same steps in this process."""
    learnt = trained(None, plan, 1, 2)  # type: ignore[arg-type]
    return [outcome.loss for outcome in learnt.outcomes]


def test_embedding_and_head_of_one_stage_both_get_the_sum() -> None:
    weights = random_weights(SIZES)
    weights.grad.normal_()
    before = {name: grad.clone() for name, grad in weights.named(weights.grad).items()}
    end = end_of(weights, {}, shared=True)
    total = end.shared_gradient()
    assert total is not None
    end.share(total)
    after = weights.named(weights.grad)
    assert torch.equal(after[EMBEDDING], before[EMBEDDING] + before[HEAD])
    assert torch.equal(after[HEAD], after[EMBEDDING])
    assert torch.equal(after["other.weight"], before["other.weight"])


def test_a_stage_between_the_ends_shares_nothing() -> None:
    weights = random_weights({"other.weight": (2, 2)})
    assert end_of(weights, {}, shared=True).shared_gradient() is None


def test_squares_stand_at_their_place_in_the_model_and_copies_count_once() -> None:
    weights = random_weights({EMBEDDING: (3,), HEAD: (2, 2)})
    weights.grad.normal_()
    names = {"elsewhere": 0, EMBEDDING: 1}
    found = end_of(weights, names, shared=True).squares()
    assert found.tolist() == pytest.approx([0.0, 0.0, float(weights.grad[:3].square().sum())])


def test_the_norm_does_not_depend_on_who_holds_what() -> None:
    """The list of squares has the same entries, whichever device writes them: == and not about."""
    sizes = {f"p{n}": (7, n + 1) for n in range(9)}
    whole = random_weights(sizes, torch.float32)
    whole.grad.normal_()
    names = {name: place for place, name in enumerate(sizes)}

    def squares(own: list[str]) -> Tensor:
        weights = random_weights({name: sizes[name] for name in own}, torch.float32)
        for name, grad in weights.named(weights.grad).items():
            grad.copy_(whole.named(whole.grad)[name])
        return end_of(weights, names).squares()

    right = Totals.of(squares(list(sizes))).norm
    assert right == pytest.approx(sqrt(float(whole.grad.double().square().sum())))
    for cut in range(1, 9):
        parts = squares(list(sizes)[:cut]) + squares(list(sizes)[cut:])
        assert Totals.of(parts).norm == right


def test_an_update_clips_by_the_norm_of_the_whole_model() -> None:
    weights = random_weights({"m.weight": (2, 2)})
    weights.grad.fill_(3.0)
    end_of(weights, {"m.weight": 0}, clip=1.0).update(torch.tensor([0.0, 16.0]))
    assert weights.grad.tolist() == [0.75] * 4


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_updates_nothing(bad: float) -> None:
    weights = random_weights({"m.weight": (2, 2)})
    before = weights.main.clone()
    with pytest.raises(RunError, match="the norm of the gradient"):
        end_of(weights, {"m.weight": 0}).update(torch.tensor([0.0, bad]))
    assert torch.equal(weights.main, before)


def test_the_gradients_of_a_tied_weight_are_added_up_in_place() -> None:
    """The largest tensors of a model: a copy of one would have to be in the predicted memory."""
    weights = random_weights(SIZES)
    end = end_of(weights, {name: place for place, name in enumerate(SIZES)}, shared=True)
    with LiveBytes() as meter:
        meter.ignore(weights.grad)
        total = end.shared_gradient()
        assert total is not None
        end.share(total)
    assert meter.peak == 0


def test_the_norm_is_taken_part_by_part_and_never_copies_a_whole_gradient() -> None:
    gradient = torch.randn(3, NORM_PART)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        found = square_sum(gradient)
    assert found.item() == pytest.approx(gradient.double().square().sum().item(), rel=1e-12)
    largest = max(event.self_cpu_memory_usage for event in seen.events())
    assert largest <= 8 * NORM_PART < gradient.nbytes
