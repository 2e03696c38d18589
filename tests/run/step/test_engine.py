"""A whole step: the same loss, norm and weights however the model is spread."""

from dataclasses import replace
from math import inf, nan

import pytest
import torch

from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.data.batch import IGNORE
from penstock.errors import RunError, ShapeError
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.transport import Alone
from penstock.run.launch.worker_pool import Crew
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.outcome import Outcome
from penstock.run.step.state import begin, entries
from penstock.schedules import build
from run.engine_jobs import (
    disagreed,
    evaluated,
    stepped_with_labels_of,
    trained_by_turns,
    unequal_batches,
)
from run.jobs import CPU, Learnt, batch_of, trained
from run.plans import SMALL, plan_of

pytestmark = pytest.mark.torch

SPREADS = {
    "one by one": build("1f1b", devices=4, microbatches=4),
    "split": build("zb-h1", devices=4, microbatches=4),
    "folded": build("zb-v", devices=4, microbatches=4),
}
TIED = replace(SMALL, tied=True, layers=8)


def _alone(plan: StepPlan, adam: AdamW | None = None) -> Engine:
    """Everything of a plan on one device, microbatch after microbatch."""
    schedule = build("1f1b", devices=1, microbatches=len(plan.lengths))
    whole = plan_of(schedule, plan.layout.model, plan.layout.dtype)
    engine = Engine(whole, Mesh(Grid()), Alone(), adam=adam or AdamW(), device=CPU)
    begin(engine, 1)
    return engine


def _merged(parts: list[Learnt]) -> dict[str, torch.Tensor]:
    return {name: value for part in parts for name, value in part.held.items()}


@pytest.mark.parametrize("schedule", SPREADS.values(), ids=SPREADS.keys())
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_loss_norm_and_weights_are_those_of_one_process_bit_for_bit(
    ranks: Crew, schedule: object, dtype: torch.dtype
) -> None:
    """The same numbers are added in the same order, and the norm is a sum along the model."""
    plan = plan_of(schedule, TIED, dtype)  # type: ignore[arg-type]
    parts = ranks.run(trained, plan, 1, 3)
    engine = _alone(plan)
    outcomes = [engine.step(batch_of(plan, step), 0.01) for step in range(3)]
    assert [part.outcomes for part in parts] == [outcomes] * 4
    found = _merged(parts)
    right = {entry.name: entry.main for entry in entries(engine) if not entry.copy}
    assert found.keys() == right.keys()
    for name, value in right.items():
        assert torch.equal(found[name], value), name


def test_two_replicas_learn_what_one_pipeline_learns_from_both_batches(ranks: Crew) -> None:
    half = plan_of(build("1f1b", devices=2, microbatches=2), TIED)
    parts = ranks.run(trained, half, 2, 2)
    whole = plan_of(build("1f1b", devices=1, microbatches=4), TIED)
    engine = _alone(whole)
    outcomes = [engine.step(batch_of(half, step, 2), 0.01) for step in range(2)]
    for part in parts:
        assert part.outcomes == parts[0].outcomes
    for mine, right in zip(parts[0].outcomes, outcomes):
        assert mine.labels == right.labels
        assert mine.loss == pytest.approx(right.loss, rel=1e-12)
        assert mine.norm == pytest.approx(right.norm, rel=1e-11)
    for name, value in _merged(parts[:2]).items():
        assert torch.equal(value, _merged(parts[2:])[name]), name


def test_a_tied_weight_counts_once_in_the_norm() -> None:
    engine = _alone(plan_of(build("1f1b", devices=1, microbatches=2), TIED))
    outcome = engine.gradients(batch_of(engine.plan))
    weights = engine.weights[0]
    found = weights.named(weights.grad)
    total = sum(float(g.square().sum()) for name, g in found.items() if name != HEAD)
    assert torch.equal(found[HEAD], found[EMBEDDING])
    assert outcome.norm == pytest.approx(total**0.5, rel=1e-12)


def test_gradients_are_clipped_to_the_limit_before_the_update() -> None:
    plan = plan_of(build("1f1b", devices=1, microbatches=2))
    engine = _alone(plan, AdamW(clip=1e-3))
    norm = engine.step(batch_of(plan), 0.0).norm
    left = sum(float(w.grad.square().sum()) for w in engine.weights.values()) ** 0.5
    assert norm > 1e-3
    assert left == pytest.approx(1e-3, rel=1e-9)


def test_gradients_of_one_step_do_not_reach_the_next() -> None:
    plan = plan_of(build("1f1b", devices=1, microbatches=2))
    engine = _alone(plan)
    first = engine.gradients(batch_of(plan))
    assert engine.gradients(batch_of(plan)) == first


def test_an_evaluation_is_the_mean_over_all_labels_of_all_batches() -> None:
    plan = plan_of(build("1f1b", devices=1, microbatches=2))
    engine = _alone(plan)
    batches = [batch_of(plan, seed) for seed in range(2)]
    batches[1][0].labels[:, 3:] = IGNORE
    outcomes = [engine.gradients(batch) for batch in batches]
    total = sum(o.loss * o.labels for o in outcomes) / sum(o.labels for o in outcomes)
    assert outcomes[0].labels > outcomes[1].labels
    assert engine.evaluate(batches) == pytest.approx(total, rel=1e-12)


def test_an_evaluation_over_replicas_counts_the_labels_of_all(ranks: Crew) -> None:
    """Their shares have unequal numbers of labels, so that the mean of means would be another."""
    half = plan_of(build("1f1b", devices=2, microbatches=2))
    batches = unequal_batches(half, 2)
    counts = [
        sum(m.valid for m in batch[:2]) - sum(m.valid for m in batch[2:]) for batch in batches
    ]
    assert min(counts) > 0
    whole = _alone(plan_of(build("1f1b", devices=1, microbatches=4)))
    right = whole.evaluate(batches)
    for found in ranks.run(evaluated, half, 2):
        assert found == pytest.approx(right, rel=1e-12)


def test_a_global_batch_without_labels_is_refused_by_all_before_it_reaches_the_weights(
    ranks: Crew,
) -> None:
    """The share of one replica may be empty."""
    half = plan_of(build("1f1b", devices=2, microbatches=2))
    labels = sum(microbatch.valid for microbatch in batch_of(half))
    for found, complaint in ranks.run(stepped_with_labels_of, half, [1]):
        assert found == labels
        assert complaint == "no label of the global batch counts, so it has no loss"


def test_gradients_of_a_batch_without_labels_are_zero() -> None:
    plan = plan_of(build("1f1b", devices=1, microbatches=2))
    batch = batch_of(plan)
    for microbatch in batch:
        microbatch.labels.fill_(IGNORE)
    assert _alone(plan).gradients(batch) == Outcome(0.0, 0.0, 0)


def test_an_evaluation_without_labels_is_refused() -> None:
    plan = plan_of(build("1f1b", devices=1, microbatches=2))
    batch = batch_of(plan)
    for microbatch in batch:
        microbatch.labels.fill_(IGNORE)
    with pytest.raises(RunError, match="no label of the evaluation counts"):
        _alone(plan).evaluate([batch])


@pytest.mark.parametrize("value", [nan, inf])
def test_a_broken_weight_stops_the_step_before_the_update(value: float) -> None:
    plan = plan_of(build("1f1b", devices=1, microbatches=2))
    engine = _alone(plan)
    weights = engine.weights[0]
    weights.main[3] = value
    weights.publish()
    before = weights.main.clone()
    with pytest.raises(RunError, match=r"the loss is (nan|inf)"):
        engine.step([m._replace(tokens=m.tokens * 0) for m in batch_of(plan)], 0.01)
    assert torch.equal(weights.main.nan_to_num(7.0), before.nan_to_num(7.0))


@pytest.mark.long
def test_narrow_types_compute_with_what_was_learnt_in_wide_ones() -> None:
    plan = plan_of(build("1f1b", devices=1, microbatches=2), dtype=torch.bfloat16)
    engine = _alone(plan)
    weights = engine.weights[0]
    losses = [engine.step(batch_of(plan), 0.02).loss for _ in range(12)]
    assert weights.main.dtype == weights.grad.dtype == torch.float32
    assert torch.equal(weights.value, weights.main.bfloat16())
    assert losses[-1] < losses[0] - 0.3


def test_it_tells_how_long_its_ops_took_and_what_memory_it_had() -> None:
    plan = plan_of(build("1f1b", devices=1, microbatches=2))
    engine = _alone(plan)
    engine.gradients(batch_of(plan))
    assert 0 < engine.busy_seconds() < 60
    assert engine.peak_bytes() > 10**7


def test_a_run_may_take_another_plan_for_every_step(ranks: Crew) -> None:
    """Order and slices change; layout, weights and moments stay."""
    plans = [
        plan_of(build("1f1b", devices=4, microbatches=4)),
        plan_of(build("seq1f1b", devices=4, microbatches=4, slices=3)),
        plan_of(build("zb-h1", devices=4, microbatches=4)),
        plan_of(build("gpipe", devices=4, microbatches=2)),
    ]
    order = [0, 1, 0, 2, 3, 1]
    engine, expected = _alone(plans[0]), []
    for step, number in enumerate(order):
        whole = build("1f1b", devices=1, microbatches=len(plans[number].lengths))
        engine.use(plan_of(whole))
        expected.append(engine.step(batch_of(plans[number], step), 0.01).loss)
    for losses, compiled in ranks.run(trained_by_turns, plans, order):
        assert losses == pytest.approx(expected, rel=1e-12)
        assert compiled == len(plans)  # each was compiled once


def test_ranks_that_choose_different_plans_are_told_so(ranks: Crew) -> None:
    plans = [plan_of(build(name, devices=4, microbatches=4)) for name in ("1f1b", "gpipe")]
    for complaint in ranks.run(disagreed, plans):
        assert "ranks 2 have another plan for the step than rank 0" in complaint


def test_a_plan_with_other_homes_is_refused() -> None:
    layout = plan_of(build("interleaved", devices=2, microbatches=2, chunks=2)).layout
    with pytest.raises(ShapeError, match="zb-v has its stages on devices 0, 1, 1, 0, but"):
        StepPlan(layout, build("zb-v", devices=2, microbatches=4), ((24,),) * 4)


def test_a_plan_of_another_layout_is_refused() -> None:
    engine = _alone(plan_of(build("1f1b", devices=1, microbatches=2)))
    other = plan_of(build("1f1b", devices=1, microbatches=2), TIED)
    with pytest.raises(RunError, match="another layout"):
        engine.use(other)
