"""A lane knows where everything is, waits for what it reads, and frees all that it holds."""

from collections import Counter
from dataclasses import replace

import pytest
from penstock.run.program.compiled import DROPPED, NOTHING, Lane, compile_lane, forward_lane

from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import RunError
from penstock.lower import lower
from penstock.run.program.unsupported import refuse_foreign, why_not
from penstock.schedules import registry
from penstock.transform import recompute_all
from penstock.verify.cases import smallest

pytestmark = pytest.mark.torch

BUILT = {name: spec.build(smallest(spec)) for name, spec in registry().items()}
SCHEDULES = {name: schedule for name, schedule in BUILT.items() if not why_not(schedule)}
LANES = {
    name: [compile_lane(lower(schedule), device) for device in range(schedule.shape.devices)]
    for name, schedule in SCHEDULES.items()
}
every = pytest.mark.parametrize("name", list(SCHEDULES))


def _received(lane: Lane) -> list[int]:
    """Tags of the receives that a lane posts."""
    return [post.tag for post in lane.first] + [p.tag for step in lane.steps for p in step.posts]


@every
def test_every_op_stands_once_in_the_order_of_its_lane(name: str) -> None:
    table = SCHEDULES[name].table
    rows = [step.row for lane in LANES[name] for step in lane.steps]
    assert sorted(rows) == list(range(len(table)))
    for lane in LANES[name]:
        own = [step.row for step in lane.steps]
        assert own == sorted(own)
        assert all(step.op == table.op(step.row) for step in lane.steps)


@every
@pytest.mark.parametrize("evaluation", [False, True], ids=["training", "evaluation"])
def test_every_transfer_is_sent_posted_and_awaited_once(name: str, evaluation: bool) -> None:
    lanes = [forward_lane(lane) if evaluation else lane for lane in LANES[name]]
    sent = Counter(post.tag for lane in lanes for step in lane.steps for post in step.sends)
    posted = Counter(tag for lane in lanes for tag in _received(lane))
    awaited = Counter(post.tag for lane in lanes for step in lane.steps for post in step.waits)
    assert sent == posted == awaited
    assert set(sent.values()) == {1}


@every
def test_a_receive_is_posted_before_it_is_awaited(name: str) -> None:
    for lane in LANES[name]:
        posted = {post.tag for post in lane.first}
        for step in lane.steps:
            assert {post.tag for post in step.waits} <= posted
            posted |= {post.tag for post in step.posts}


@pytest.mark.parametrize("again", [False, True], ids=["kept", "recomputed"])
@every
def test_what_a_place_holds_is_written_before_it_is_read_and_freed_after(
    name: str, again: bool
) -> None:
    schedule = (
        recompute_all(replace(SCHEDULES[name], loans=(), derived={})) if again else SCHEDULES[name]
    )
    writes = {
        "F": ("out", "act", "kv"), "N": ("out", "ckpt", "kv"), "R": ("act",),
        "B": ("out", "dkv"), "I": ("out", "dkv", "stash"), "W": (),
    }  # fmt: skip
    reads = {
        "F": ("x",), "N": ("x",), "R": ("ckpt", "kv"),
        "B": ("act", "g", "kv"), "I": ("act", "g", "kv"), "W": ("stash",),
    }  # fmt: skip
    for device in range(schedule.shape.devices):
        lane = compile_lane(lower(schedule), device)
        held = {post.place for post in lane.first}
        for step in lane.steps:
            wanted = {getattr(step.places, field) for field in reads[step.op.kind]}
            assert wanted - {NOTHING} <= held, step
            held |= {getattr(step.places, field) for field in writes[step.op.kind]}
            assert {post.place for post in step.sends} <= held, step
            held -= set(step.frees)
            held |= {post.place for post in step.posts}
        assert held <= {NOTHING, DROPPED}


@every
def test_an_evaluation_has_the_forwards_alone_and_is_left_with_the_losses(name: str) -> None:
    last = SCHEDULES[name].shape.stages - 1
    for lane in LANES[name]:
        light = forward_lane(lane)
        assert {step.op.kind for step in light.steps} <= {"F", "N"}
        held: set[int] = {post.place for post in light.first}
        for step in light.steps:
            assert {step.places.act, step.places.ckpt} == {DROPPED}
            held |= {step.places.out, step.places.kv, DROPPED}
            held -= set(step.frees)
            held |= {post.place for post in step.posts}
        losses = {step.places.out for step in light.steps if step.op.stage == last}
        assert held - {NOTHING} == losses


def test_slices_of_a_microbatch_share_the_place_of_their_keys_and_values() -> None:
    lane = LANES["seq1f1b"][1]
    places = {(step.op.mb, step.places.kv) for step in lane.steps}
    assert len(places) == SCHEDULES["seq1f1b"].shape.microbatches
    assert NOTHING not in {place for _, place in places}


def _schedule(**changed: object) -> Schedule:
    lane = [("F", 0, 0, 0), ("B", 0, 0, 0)]
    schedule = Schedule.of("odd", Shape(1, 1, (1,)), [lane])
    return replace(schedule, derived={}, **changed)  # type: ignore[arg-type]


def test_kinds_that_the_executor_has_no_work_for_are_refused_by_name() -> None:
    lane = [("F", 0, 0, 0), ("B", 0, 0, 0), ("U", 0, 0, 0)]
    schedule = Schedule.of("odd", Shape(1, 1, (1,)), [lane])
    program = lower(_schedule())
    with pytest.raises(RunError, match="odd has ops of kind U, which cannot be run"):
        refuse_foreign(replace(program, schedule=schedule))


def test_skip_edges_are_refused_by_name() -> None:
    program = lower(_schedule())
    shape = replace(program.schedule.shape, devices=1, stages=4, skips=((0, 3),))
    foreign = replace(program, schedule=replace(program.schedule, shape=shape, derived={}))
    with pytest.raises(RunError, match="odd has skip edges: 0-3"):
        refuse_foreign(foreign)
