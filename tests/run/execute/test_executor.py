"""The one loop, on every registered schedule: results, order, slots, and nothing left behind."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.run.program.compiled import NOTHING, Post, Step
from penstock.run.program.plan import RunPlan

from penstock.core.program import Channel
from penstock.data.batch import Microbatch
from penstock.model.attention.piece import Piece
from penstock.run.execute.executor import WORK, Executor, Values
from penstock.run.observe.memory_meter import LiveBytes
from penstock.run.program.unsupported import why_not
from penstock.schedules import registry
from penstock.verify.cases import CaseSizes, smallest, trials_of
from penstock.verify.compare import difference
from penstock.verify.material import microbatches_of, parameters_of
from penstock.verify.oracle import Answer, answer
from penstock.verify.trial import trial_plan
from penstock.verify.variants import Trial, TrialWork
from run.threads import Office, Rig, in_order, shuffled

pytestmark = pytest.mark.torch

BUILT = {name: spec.build(smallest(spec)) for name, spec in registry().items()}
RUNNABLE = [name for name, schedule in BUILT.items() if not why_not(schedule)]
RECOMPUTED = [name for name in RUNNABLE if not BUILT[name].loans]
"""Attention that is lent cannot be run again."""
every_schedule = pytest.mark.parametrize("name", RUNNABLE)


@cache
def _trial(name: str, variant: str) -> Trial:
    spec = registry()[name]
    small = CaseSizes(devices=(3, 2, 4), microbatches=(4, 3, 6, 2, 8), slices=(2, 3, 4, 8))
    trials, _ = trials_of(spec.build(next(small.accepted(spec))), None)
    return next(trial for trial in trials if trial.variant == variant)


@cache
def _plan(name: str, variant: str) -> RunPlan:
    return trial_plan(_trial(name, variant))


def _batch(name: str, variant: str) -> list[Microbatch]:
    work = _trial(name, variant).work
    return microbatches_of(work.batch, work.model.vocabulary)


@cache
def _answer(work: TrialWork) -> Answer:
    """Of the judge, which has no schedule."""
    batch = microbatches_of(work.batch, work.model.vocabulary)
    return answer(work.model, parameters_of(work.model, torch.float64), batch)


class Ran(NamedTuple):
    """A step, or an evaluation, whose messages came in any order."""

    loss: float
    office: Office
    gradients: dict[tuple[int, str], torch.Tensor]


@cache
def _stepped(name: str, variant: str) -> Ran:
    rig, office = Rig(_plan(name, variant)), shuffled(1)
    loss = rig.step(_batch(name, variant), office)
    return Ran(loss, office, rig.gradients())


@cache
def _evaluated(name: str, variant: str) -> Ran:
    rig, office = Rig(_plan(name, variant)), shuffled(2)
    loss = rig.evaluate(_batch(name, variant), office)
    return Ran(loss, office, rig.gradients())


both_passes = pytest.mark.parametrize("run", [_stepped, _evaluated], ids=["step", "evaluation"])


@every_schedule
def test_threads_with_messages_in_any_order_give_what_the_judge_gives(name: str) -> None:
    ran = _stepped(name, "ragged")
    held = [(parameter, gradient) for (_, parameter), gradient in ran.gradients.items()]
    found = difference(ran.loss, held, _answer(_trial(name, "ragged").work))
    assert found.within(1e-10), found


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(RUNNABLE), st.integers(0, 2**20))
def test_when_messages_arrive_changes_no_bit(name: str, seed: int) -> None:
    rig, batch = Rig(_plan(name, "float32")), _batch(name, "float32")
    found = []
    for office in (in_order(), shuffled(seed)):
        rig.zero()
        found.append((rig.step(batch, office), rig.gradients()))
    (loss, right), (other_loss, other) = found
    assert loss == other_loss
    assert all(torch.equal(gradient, other[key]) for key, gradient in right.items())


@pytest.mark.parametrize(
    ("name", "variant"),
    [*((name, "ragged") for name in RUNNABLE), *((name, "recompute") for name in RECOMPUTED)],
)
def test_evaluation_gives_the_loss_of_the_judge_and_no_gradient(name: str, variant: str) -> None:
    ran = _evaluated(name, variant)
    assert ran.loss == pytest.approx(_answer(_trial(name, variant).work).loss, rel=1e-12)
    assert all(not gradient.any() for gradient in ran.gradients.values())


@every_schedule
def test_training_after_evaluation_is_training(name: str) -> None:
    """Tags are used again in every pass, and nothing of one may be met in the next."""
    rig, batch = Rig(_plan(name, "ragged")), _batch(name, "ragged")
    rig.evaluate(batch, in_order())
    right = _stepped(name, "ragged")
    assert rig.step(batch, in_order()) == right.loss
    found = rig.gradients()
    assert all(torch.equal(gradient, found[key]) for key, gradient in right.gradients.items())


@every_schedule
@both_passes
def test_no_channel_has_more_receives_than_planned_slots_and_every_message_is_taken(
    name: str, run: Callable[[str, str], Ran]
) -> None:
    program, office = _plan(name, "ragged").program, run(name, "ragged").office
    slots = dict(zip(program.channels, program.slots))
    assert {channel for channel, most in office.most.items() if most > slots[channel]} == set()
    assert {channel.payload for channel in office.most} >= {"x"}
    assert not any(office.outstanding.values())
    assert not office.waiting


def _kept(executor: Executor) -> list[torch.Tensor]:
    """What a device has between steps: weights, and how positions turn, where it has any."""
    found = [flat for own in executor.weights.values() for flat in (own.main, own.grad)]
    contexts = (getattr(stage, "context", None) for stage in executor.stages.values())
    return found + [table for c in contexts if c for table in (c.cos, c.sin)]


class _Metered:
    """An office between devices each of which counts its bytes."""

    def __init__(self) -> None:
        self.left: dict[int, int] = {}

    def step(self, executor: Executor, pieces: Sequence[Piece]) -> list[torch.Tensor]:
        """The losses as plain numbers, so that they are no bytes."""
        with LiveBytes() as meter:
            meter.ignore(*_kept(executor))
            for piece in pieces:
                meter.ignore(piece.tokens, piece.labels)
            losses = [float(loss) for loss in executor.step(pieces)]
            self.left[executor.lane.device] = meter.level
        return [torch.tensor(loss, dtype=torch.float64) for loss in losses]


@every_schedule
def test_a_step_leaves_nothing_behind(name: str) -> None:
    rig, batch, metered = Rig(_plan(name, "ragged")), _batch(name, "ragged"), _Metered()
    rig.step(batch, in_order())  # what is made once is no part of a step
    rig._all(batch, in_order(), metered.step)
    assert metered.left == dict.fromkeys(range(len(rig.executors)), 0)


@pytest.mark.parametrize("name", RECOMPUTED)
def test_values_are_freed_by_the_end_of_every_step_and_the_empty_place_stays_empty(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists: dict[int, Values] = {}
    for kind, work in list(WORK.items()):

        def noting(*given: Any, work: Callable[..., None] = work) -> None:
            values = given[3]
            assert values[NOTHING] is None
            lists[id(values)] = values
            work(*given)

        monkeypatch.setitem(WORK, kind, noting)
    rig = Rig(_plan(name, "recompute"))
    rig.step(_batch(name, "recompute"), in_order())
    assert len(lists) == len(rig.executors)
    for values in lists.values():
        assert all(value is None for value in values)


def test_spans_stand_for_the_ops_of_the_lane_and_observers_hear_of_each() -> None:
    rig = Rig(_plan("1f1b", "float32"))

    class Ear:
        def __init__(self) -> None:
            self.heard: list[tuple[str, Step]] = []

        def waits(self, step: Step, post: Post) -> None:
            self.heard.append(("waits", step))

        def runs(self, step: Step) -> None:
            self.heard.append(("runs", step))

        def ran(self, step: Step) -> None:
            self.heard.append(("ran", step))

    ears = [Ear() for _ in rig.executors]
    for executor, ear in zip(rig.executors, ears):
        executor.observer = ear
    rig.step(_batch("1f1b", "float32"), in_order())
    for executor, ear in zip(rig.executors, ears):
        steps = executor.lane.steps
        expected = [
            (word, step) for step in steps for word in (*["waits"] * len(step.waits), "runs", "ran")
        ]
        assert ear.heard == expected
        marks = [m for pair in zip(executor.spans.start, executor.spans.end) for m in pair]
        assert len(marks) == 2 * len(steps)
        assert marks == sorted(marks)


def test_what_is_to_follow_an_op_follows_it_and_not_in_evaluation() -> None:
    rig = Rig(_plan("1f1b", "float32"))
    called: list[int] = []
    executor = rig.executors[0]
    row = executor.lane.steps[3].row
    executor.after[row] = lambda: called.append(len(executor.spans.end))
    rig.evaluate(_batch("1f1b", "float32"), in_order())
    assert called == []
    rig.step(_batch("1f1b", "float32"), in_order())
    assert called == [4]


def test_a_message_that_is_read_before_it_has_come_spoils_the_loss() -> None:
    """Else a missing wait could go unnoticed in the tests above."""

    class Hasty(Office):
        def wait(self, channel: Channel, tag: int) -> None:
            return None

    rig = Rig(_plan("1f1b", "float32"))
    assert rig.step(_batch("1f1b", "float32"), Hasty(lambda ready: ready[0])) != pytest.approx(
        _answer(_trial("1f1b", "float32").work).loss
    )
