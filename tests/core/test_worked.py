"""The meaning table reproduces what papers print for kinds that plain pipelines lack."""

from fractions import Fraction

from core.worked import (
    VOCABULARY_1,
    VOCABULARY_2,
    braided,
    helix,
    multiplexed,
    offloaded,
    vocabulary,
)
from penstock.check import check, check_program
from penstock.cost.model import UnitCost
from penstock.lower import lower
from penstock.sim import simulate

VOCABULARY_TIMES = UnitCost(times={"S": Fraction(1, 4), "T": Fraction(1, 4)})


def test_vocabulary_algorithm_1_costs_the_passes_and_two_microbatches_of_memory():
    schedule = vocabulary(VOCABULARY_1, "T")
    timeline = simulate(schedule, VOCABULARY_TIMES)
    assert timeline.makespan == 37  # 8 (1 + 2 + 1/2) + 3 (1 + 2)
    assert timeline.peak == (6, 5, 4, 3)


def test_vocabulary_algorithm_2_needs_one_microbatch_less():
    timeline = simulate(vocabulary(VOCABULARY_2, "S"), VOCABULARY_TIMES)
    assert timeline.makespan == 37
    assert timeline.peak == (5, 4, 3, 2)


def test_algorithm_2_lanes_are_refused_when_the_backward_must_wait_for_the_second_pass():
    report = check(vocabulary(VOCABULARY_2, "T"))
    assert {finding.rule for finding in report.findings} <= {"read-before-write", "deadlock"}
    assert not report.proven


def test_vocabulary_shards_must_join_their_collectives_in_one_order():
    swapped = VOCABULARY_2.replace("T6 S7 B7 T7", "T7 S7 B7 T6", 1)
    findings = check(vocabulary(swapped, "S")).findings
    assert [finding.rule for finding in findings] == ["collective-order"]
    assert "device 3" in findings[0].message


def test_attention_stages_may_live_anywhere_and_the_helix_order_takes_69():
    schedule = helix()
    timeline = simulate(schedule)
    assert timeline.makespan == 69
    assert timeline.work == (60, 60, 60, 60)
    assert check_program(lower(schedule)) == ()


def test_a_parameter_stage_that_moves_between_devices_is_refused():
    schedule = helix()
    lanes = [(device, stream, list(ops)) for device, stream, ops in schedule.table.lanes()]
    stray = next(op for op in lanes[1][2] if op.stage == 2)
    lanes[1][2].remove(stray)
    lanes[2][2].append(stray)
    findings = check(type(schedule).from_lanes("helix", schedule.shape, lanes)).findings
    assert findings[0].rule == "one-home"
    assert findings[0].ops == (stray,)


def test_braided_pairs_cost_the_sum_of_their_strands_and_hide_communication():
    schedule = braided()
    two = Fraction(2)  # so that one chunk costs 1
    plain = UnitCost(times={"F": two, "I": two, "W": two})
    assert simulate(schedule, plain).makespan == 37  # 6 m + p - 1
    busy = UnitCost(times=plain.times, communication=Fraction(1))
    assert simulate(schedule, busy).makespan == 40  # (p - 1 + 2 p + 1) x 1/2 more


def test_strands_that_deliver_at_their_own_end_are_never_slower():
    schedule = braided()
    cost = UnitCost(times={"F": Fraction(2), "I": Fraction(12, 5), "W": Fraction(8, 5)})
    together = simulate(schedule, cost)
    apart = simulate(schedule, cost, strands="apart")
    assert apart.makespan < together.makespan


def test_a_gang_shares_its_op_and_removes_the_ramps():
    timeline = simulate(multiplexed(), UnitCost(times={"F": Fraction(4), "I": Fraction(4)}))
    forwards = [span for span in timeline.spans() if span.op.kind == "F"]
    assert max(span.end for span in forwards) == 4


def test_a_gang_of_two_halves_an_odd_number_of_ticks_exactly():
    timeline = simulate(multiplexed(), UnitCost(times={"F": Fraction(1, 3)}))
    assert timeline.spans()[0].end == Fraction(1, 3) / 4 / 2


def test_an_offload_frees_memory_while_it_is_away():
    kept = simulate(offloaded(Fraction(1, 2)))
    gone = simulate(offloaded())
    assert kept.peak == (Fraction(5, 2),)
    assert gone.peak == (2,)
    assert check_program(lower(offloaded())) == ()
