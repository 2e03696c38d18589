"""The one loop, on every registered schedule: results, order, slots, and nothing left behind."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loops import each, one_of
from penstock.core.program import Channel
from penstock.core.schedule import Schedule
from penstock.data.batch import Microbatch
from penstock.lower import lower_for_running
from penstock.model.attention.piece import Piece
from penstock.run.execute import executor as executor_module
from penstock.run.execute.executor import Executor
from penstock.run.execute.handlers import HANDLERS
from penstock.run.execute.observer import Quiet
from penstock.run.observe.memory_meter import LiveBytes
from penstock.run.program.calls import NOTHING, Call, Post
from penstock.run.program.step_plan import StepPlan
from penstock.run.program.unsupported import why_not
from penstock.run.program.values import Values
from penstock.run.step.stages import weightless_stages
from penstock.schedules import registry
from penstock.verify.cases import CaseSizes, smallest, trials_of
from penstock.verify.compare import TOLERANCE, HeldGradient, difference
from penstock.verify.material import microbatches_of, parameters_of
from penstock.verify.oracle import Answer, answer
from penstock.verify.scale import CPU
from penstock.verify.trial import trial_plan
from penstock.verify.variants import Trial, TrialWork, variants_of
from run.threads import Office, Rig, in_order, shuffled

pytestmark = pytest.mark.torch

every_schedule = pytest.mark.parametrize("name", one_of(4, ((name,) for name in registry())))
SHALLOW = replace(CPU, layers=4)
"""What an executor does is the same for any layers: of three stages one has two of them."""


@cache
def _built(name: str) -> Schedule:
    """A schedule at its preferred size; one that cannot be run is skipped with the reason."""
    schedule = registry()[name].build(smallest(registry()[name]))
    if reason := why_not(schedule):
        pytest.skip(reason)
    return schedule


def _recomputed(name: str) -> None:
    """Skip what cannot be run again: activations that are offloaded."""
    if "O" in _built(name).table.kinds:
        pytest.skip("offloads activations, which cannot be run again")


@cache
def _trial(name: str, variant: str) -> Trial:
    _built(name)
    spec = registry()[name]
    variants = variants_of(SHALLOW)
    small = CaseSizes(devices=(3, 2, 4), microbatches=(4, 3, 6, 2, 8), slices=(2, 3, 4, 8))
    trials, _ = trials_of(spec.build(next(small.accepted(spec))), None, variants)
    return next(trial for trial in trials if trial.variant == variant)


@cache
def _plan(name: str, variant: str) -> StepPlan:
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
    held: list[HeldGradient]
    rig: Rig


@cache
def _stepped(name: str, variant: str) -> Ran:
    rig, office = Rig(_plan(name, variant)), shuffled(1)
    loss = rig.step(_batch(name, variant), office)
    return Ran(loss, office, rig.gradients(), rig.held(), rig)


@cache
def _evaluated(name: str, variant: str) -> Ran:
    rig, office = Rig(_plan(name, variant)), shuffled(2)
    loss = rig.evaluate(_batch(name, variant), office)
    return Ran(loss, office, rig.gradients(), rig.held(), rig)


both_passes = each("run", [_stepped, _evaluated], ids=["step", "evaluation"])


@pytest.mark.long
@every_schedule
def test_threads_with_messages_in_any_order_give_what_the_judge_gives(name: str) -> None:
    ran = _stepped(name, "ragged")
    found = difference(ran.loss, ran.held, _answer(_trial(name, "ragged").work))
    assert found.within(TOLERANCE["cpu"]["float64"]), found


@pytest.mark.long
@settings(max_examples=12, deadline=None)
@given(st.sampled_from([*registry()]), st.integers(0, 2**20))
def test_when_messages_arrive_changes_no_bit(name: str, seed: int) -> None:
    assume(not why_not(registry()[name].build(smallest(registry()[name]))))
    rig, batch = Rig(_plan(name, "float32")), _batch(name, "float32")
    found = []
    for office in (in_order(), shuffled(seed)):
        rig.zero()
        found.append((rig.step(batch, office), rig.gradients()))
    (loss, right), (other_loss, other) = found
    assert loss == other_loss
    assert all(torch.equal(gradient, other[key]) for key, gradient in right.items())


@pytest.mark.long
@each("variant", ["ragged", "recompute"])
@every_schedule
def test_evaluation_gives_the_loss_of_the_judge_and_no_gradient(name: str, variant: str) -> None:
    if variant == "recompute":
        _recomputed(name)
    ran = _evaluated(name, variant)
    assert ran.loss == pytest.approx(_answer(_trial(name, variant).work).loss, rel=1e-12)
    assert all(not gradient.any() for gradient in ran.gradients.values())


@pytest.mark.long
@every_schedule
@both_passes
def test_no_channel_has_more_receives_than_planned_slots_and_every_message_is_taken(
    name: str, run: Callable[[str, str], Ran]
) -> None:
    program = lower_for_running(_plan(name, "ragged").schedule)
    office = run(name, "ragged").office
    slots = dict(zip(program.channels, program.slots))
    carried = {channel: most for channel, most in office.most.items() if channel in slots}
    assert {channel for channel, most in carried.items() if most > slots[channel]} == set()
    assert {channel.payload for channel in office.most.keys() - slots.keys()} <= {"host", "back"}
    assert {channel.payload for channel in office.most} >= {"x"}
    assert not any(office.outstanding.values())
    assert not office.waiting


def _kept(rig: Rig) -> list[torch.Tensor]:
    """What devices have between steps: weights, and how positions turn, where they have any."""
    found = [flat for own in rig.weights.values() for flat in (own.main, own.grad)]
    stages = {*rig.stages.values(), *weightless_stages(rig.layout, torch.device("cpu")).values()}
    stretches = [each for own in rig.executors for each in own._whole.stretches]
    subjects = [turn.subject for stretch in stretches for turn in stretch.turns]
    contexts = (getattr(stage, "context", None) for stage in (*stages, *subjects))
    return found + [table for c in contexts if c for both in c.tables for table in both]


class _Metered:
    """An office between devices each of which counts its bytes."""

    def __init__(self, rig: Rig) -> None:
        self.left: dict[int, int] = {}
        self.kept = _kept(rig)

    def step(self, executor: Executor, pieces: Sequence[Piece]) -> list[torch.Tensor]:
        """The losses as plain numbers, so that they are no bytes."""
        with LiveBytes() as meter:
            meter.ignore(*self.kept)
            for piece in pieces:
                meter.ignore(piece.tokens, piece.labels)
            losses = [float(loss) for loss in executor.step(pieces)]
            self.left[executor.lane.device] = meter.level
        return [torch.tensor(loss, dtype=torch.float64) for loss in losses]


@pytest.mark.long
@every_schedule
def test_a_step_after_an_evaluation_is_any_step_and_leaves_nothing_behind(name: str) -> None:
    """Tags are used again in every pass, and nothing of one may be met in the next."""
    right, batch = _stepped(name, "ragged"), _batch(name, "ragged")
    rig = right.rig  # has done a step: what is made once is no part of one
    rig.evaluate(batch, in_order())
    rig.zero()
    metered = _Metered(rig)
    assert rig._all(batch, in_order(), metered.step) == right.loss
    found = rig.gradients()
    assert all(torch.equal(gradient, found[key]) for key, gradient in right.gradients.items())
    assert metered.left == dict.fromkeys(range(len(rig.executors)), 0)


@pytest.mark.long
@every_schedule
def test_values_are_freed_by_the_end_of_every_step_and_the_empty_place_stays_empty(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = "ragged" if "O" in _built(name).table.kinds else "recompute"
    if variant == "recompute":
        _recomputed(name)
    lists: dict[int, Values] = {}

    def noting(work: Callable[..., Any], *given: Any) -> Any:
        values = given[2]
        assert values[NOTHING] is None
        lists[id(values)] = values
        return work(*given)

    noted = {kind: partial(noting, work) for kind, work in HANDLERS.items()}
    monkeypatch.setattr(executor_module, "HANDLERS", noted)
    rig = Rig(_plan(name, variant))
    rig.step(_batch(name, variant), in_order())
    assert len(lists) == len(rig.executors)
    for values, executor in zip(lists.values(), rig.executors):
        homes = {place for each in rig.executors for place in each.lane.homes.values()}
        assert executor.lane.places
        left = [place for place, value in enumerate(values) if value is not None]
        assert set(left) <= homes


class Ear(Quiet):
    """Hears what the main thread of a device does."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Call]] = []

    def waits(self, call: Call, post: Post) -> None:
        self.heard.append(("waits", call))

    def runs(self, call: Call) -> None:
        self.heard.append(("runs", call))

    def ran(self, call: Call) -> None:
        self.heard.append(("ran", call))


def test_spans_stand_for_the_ops_of_the_lane_and_observers_hear_of_each() -> None:
    rig = Rig(_plan("1f1b", "float32"))
    ears = [Ear() for _ in rig.executors]
    for executor, ear in zip(rig.executors, ears):
        executor.observer = ear
    rig.step(_batch("1f1b", "float32"), in_order())
    for executor, ear in zip(rig.executors, ears):
        calls = executor.lane.calls
        expected = [
            (word, call) for call in calls for word in (*["waits"] * len(call.waits), "runs", "ran")
        ]
        assert ear.heard == expected
        assert executor.spans.calls == calls
        marks = [m for pair in zip(executor.spans.start, executor.spans.end) for m in pair]
        assert len(marks) == 2 * len(calls)
        assert marks == sorted(marks)


def test_the_strands_of_a_pair_start_when_both_can_and_end_together() -> None:
    rig = Rig(_plan("dualpipev", "float32"))
    ears = [Ear() for _ in rig.executors]
    for executor, ear in zip(rig.executors, ears):
        executor.observer = ear
    rig.step(_batch("dualpipev", "float32"), in_order())
    pairs = 0
    for executor, ear in zip(rig.executors, ears):
        spans, by_number = executor.spans, {c.number: c for c in executor.lane.calls}
        heard = [(word, call.number) for word, call in ear.heard]
        for strands in executor.lane.braids.values():
            pairs += 1
            places = [executor.lane.calls.index(by_number[number]) for number in strands]
            assert len({(spans.start[at], spans.end[at]) for at in places}) == 1
            begun = heard.index(("runs", strands[0]))
            late = [("waits", number) for number in strands if ("waits", number) in heard[begun:]]
            assert late == []
    assert pairs == len(rig.plan.schedule.pairs) > 0


def test_a_message_that_is_read_before_it_has_come_spoils_the_loss() -> None:
    """Else a missing wait could go unnoticed in the tests above."""

    class Hasty(Office):
        def wait(self, channel: Channel, tag: int) -> None:
            return None

    rig = Rig(_plan("1f1b", "float32"))
    assert rig.step(_batch("1f1b", "float32"), Hasty(lambda ready: ready[0])) != pytest.approx(
        _answer(_trial("1f1b", "float32").work).loss
    )
