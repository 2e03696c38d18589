"""Collectives and loans have a price: what they move, over the links that they use."""

from dataclasses import replace
from fractions import Fraction

from penstock.arch.config import ModelConfig
from penstock.core.ops import parse_op
from penstock.core.schedule import Loan, Schedule
from penstock.core.shape import Shape
from penstock.cost.hardware import HARDWARE
from penstock.cost.layer_exchange import step_exchange
from penstock.cost.model import Link, UnitCost
from penstock.cost.transformer import TransformerCost
from penstock.schedules import build
from penstock.sim import simulate
from penstock.sim.loans import exchange_time

EMBEDDING = {"E": Fraction(1), "D": Fraction(0), "F": Fraction(1), "I": Fraction(1)}


def embedded(first_part: str, second_part: str) -> Schedule:
    """Two stages on two devices; the embedding is computed on shards, which wait as they are told.

    Device 0 does its part of microbatch 1 before or after the forward of microbatch 0.
    """
    shape = Shape(2, 2, (1,), embed="E", boundary_bytes=(100,))
    lanes = [
        [parse_op(word) for word in first_part.split()],
        [parse_op(word) for word in second_part.split()],
    ]
    return Schedule.of("embedded", shape, lanes)


def start_of(schedule: Schedule, cost: UnitCost, op: str) -> Fraction:
    spans = simulate(schedule, cost).spans()
    return next(span.start for span in spans if span.op == parse_op(op))


def test_a_collective_takes_its_time_after_the_last_part_whoever_wrote_it() -> None:
    """Parts are there at 1; one hop and 100 bytes at 1/50 later the forward has their sum."""
    schedule = embedded("0E0 0F0 0B0 0D0", "1E0 1F0 1B0 1D0")
    cost = UnitCost(times=EMBEDDING, hop=Fraction(1, 2), per_byte=Fraction(1, 50))
    assert start_of(schedule, cost, "0F0") == 1 + Fraction(1, 2) + 2
    slow_home = replace(cost, op_times={parse_op("0E0"): Fraction(4)})
    assert start_of(schedule, slow_home, "0F0") == 4 + Fraction(1, 2) + 2


def test_a_collective_is_as_slow_as_its_slowest_link() -> None:
    schedule = build("vocab-1f1b", devices=3, microbatches=2)
    cost = UnitCost(times={"S": Fraction(1)}, links={(2, 0): Link(Fraction(10))})
    free = UnitCost(times={"S": Fraction(1)})
    second_pass = "0T0"
    assert start_of(schedule, cost, second_pass) >= 10 + min(
        span.end for span in simulate(schedule, free).spans() if span.op == parse_op("2S0")
    )


def lent() -> Schedule:
    """Slice 1 of microbatch 0 lends one slice to the first slice of microbatch 1."""
    shape = Shape(2, 2, (2, 2), boundary_bytes=(80,))
    good = build("seq1f1b", devices=2, microbatches=2, slices=2)
    lanes = good.table.lanes()
    loan = Loan(parse_op("1F0.1"), parse_op("0F1"), 1)
    return Schedule.from_lanes("lent", shape, lanes, loans=(loan,))


def test_ops_in_lock_step_take_at_least_as_long_as_what_they_exchange_travels() -> None:
    """Queries of 40 bytes and keys and values of 80 go there, 40 bytes come back, two hops."""
    schedule = lent()
    cost = UnitCost(hop=Fraction(1), per_byte=Fraction(1, 20))
    travel = exchange_time(schedule, cost, schedule.loans[0])
    assert travel == 2 + Fraction(120 + 40, 20)
    spans = {str(span.op): span for span in simulate(schedule, cost).spans()}
    assert spans["1F0.1"].end - spans["1F0.1"].start == travel
    assert spans["0F1"].end - spans["0F1"].start == travel
    free = {str(span.op): span for span in simulate(schedule).spans()}
    assert free["0F1"].end - free["0F1"].start == Fraction(1, 2)


def test_what_is_lent_travels_while_both_ops_run() -> None:
    timeline = simulate(lent(), UnitCost(hop=Fraction(1)))
    moved = timeline.transfers
    for payload, writer in (("lent", "1F0.1"), ("returned", "0F1")):
        at = moved.payload.index(payload)
        row = int(moved.writer[at])
        assert timeline.schedule.table.op(row) == parse_op(writer)
        assert moved.start[at] == timeline.start[row]
        assert moved.end[at] == timeline.end[row]


def test_a_model_prices_the_layers_of_the_stage() -> None:
    model = ModelConfig(
        layers=8, hidden=64, ffn=128, heads=8, kv_heads=2, head_size=8, vocabulary=256
    )
    schedule = build("slimpipe-exchange", devices=2, microbatches=2, slices=4)
    machine = HARDWARE["h200"]
    cost = TransformerCost.of(schedule.shape, model, machine, [50] * 4)
    moved = [cost.exchange(loan, schedule.shape) for loan in schedule.loans]
    assert sum(sum(each) for each in moved) == step_exchange(schedule, model, 50)
