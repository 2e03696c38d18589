"""What a step makes of kernels, from a step whose factors are known."""

from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest

from penstock.cluster.measured import FACTORS, FIXED_PARTS
from penstock.cluster.profile_file import machine_of
from penstock.core.ops import Op
from penstock.estimate.measured_times import ProfiledTimes
from penstock.profiling.case import ProfileCase, three_stages
from penstock.profiling.in_step import StepOps, factors_of, fit_factors, op_rows, phases_of
from penstock.profiling.modules import module_rows
from penstock.profiling.sizes import whole_unit
from profiling.made_up import CASE, FLOPS, profile

ONES, NOTHING = dict.fromkeys(FACTORS, 1.0), dict.fromkeys(FIXED_PARTS, 0.0)
FIXED_SECONDS = dict(zip(FIXED_PARTS, (1e-4, 2e-4, 3e-4, 4e-4)))
KNOWN = dict(zip(FACTORS, (1.2, 1.3, 1.1, 1.5, 0.9, 1.4)))


def _times(case: ProfileCase, factors: dict[str, float], fixed: dict[str, float]) -> ProfiledTimes:
    gpu = machine_of(profile(in_step=factors, fixed_seconds=fixed), "ours").cluster.gpu
    return ProfiledTimes(case.model, case.model, gpu, 1.0, "flash2", False)


def _step(
    case: ProfileCase, factors: dict[str, float], fixed: dict[str, float] = FIXED_SECONDS
) -> StepOps:
    """A step in which kernels take `factors` times what they take one by one."""
    times, layers = _times(case, factors, fixed), (2, 1, 1)
    starts = [0, *accumulate(case.lengths)]
    flops = 3 * case.model.vocabulary * case.model.head.flops_per_logit
    ops = {}
    for slice, (count, past) in enumerate(zip(case.lengths, starts)):
        each = times.seconds(whole_unit(count, past))
        for stage in range(3):
            for kind, seconds in zip("FIW", each):
                head = times.head_seconds(count, flops * count, "I") * (stage == 2 and kind == "I")
                ops[Op(kind, stage, 0, slice)] = layers[stage] * seconds + head
    ops[Op("V", 0, 0, 0)], ops[Op("U", 0, 0, 0)] = 0.001, 0.002
    return StepOps(case, _times(case, ONES, NOTHING), ops, sum(ops.values()), 0.0)


NEAR = replace(CASE, sizes=replace(CASE.sizes, window=64, window_pattern=(True, False)))
"""Half of the layers see the last 64 keys: those of the first stage on average as all."""


def test_attention_of_a_stage_is_the_mean_of_layers_with_a_window_and_without() -> None:
    """Of four layers the second and the last see all keys: one of the first stage's two, none of
    the middle, all of the last."""
    step, ends = _step(NEAR, KNOWN), [*accumulate(NEAR.lengths)]
    last, middle, both = (step.attended(stages) for stages in ([2], [1], [1, 2]))
    every = [end * end / 2 for end in ends]
    windowed = [64 * (2 * end - 64) / 2 for end in ends]
    seconds = NEAR.model.pair_flops / FLOPS
    for times, found in enumerate(zip(last, middle, both), 1):
        whole, near = (times * seconds * np.diff(each, prepend=0.0) for each in (every, windowed))
        for mine, wanted in zip(found, (whole, near, (whole + near) / 2)):
            assert mine == pytest.approx(wanted)


STEPS = (CASE, replace(CASE, slices=1), replace(CASE, tokens=CASE.tokens // 4))


@pytest.mark.parametrize("constant", [True, False])
def test_factors_that_are_alike_are_found(constant: bool) -> None:
    known = KNOWN | {"attention forward": KNOWN["forward"], "attention backward": KNOWN["inputs"]}
    found = factors_of([_step(case, known, NOTHING) for case in STEPS], constant)
    assert found.in_step == pytest.approx(known, rel=1e-6)
    assert found.fixed == pytest.approx(NOTHING, abs=1e-9)
    assert found.between == pytest.approx(0.0, abs=1e-15)


def test_a_step_with_other_factors_and_a_constant_is_told_again() -> None:
    found = factors_of([_step(case, KNOWN) for case in STEPS], True)
    for case in (*STEPS, replace(CASE, tokens=CASE.tokens // 2)):
        told = _step(case, found.in_step, found.fixed).ops
        for op, seconds in _step(case, KNOWN).ops.items():
            assert told[op] == pytest.approx(seconds, rel=0.03)


def test_noise_of_a_per_cent_does_not_become_factors_of_a_half_and_of_two() -> None:
    columns = [np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.1, 3.2, 4.4])]
    measured = sum(columns) * np.array([1.0, 1.01, 0.99, 1.01])
    _, *factors = fit_factors([(measured, columns)], False)
    assert factors == pytest.approx([1.0, 1.0], abs=0.06)


def test_one_slice_has_one_factor_for_products_and_attention() -> None:
    found = factors_of([_step(replace(CASE, slices=1), KNOWN)], False)
    assert found.in_step["forward"] == pytest.approx(found.in_step["attention forward"], rel=0.02)
    assert found.fixed == NOTHING


def test_time_that_belongs_to_no_op_lies_between_ops() -> None:
    step = _step(CASE, KNOWN)
    found = factors_of([replace(step, seconds=step.seconds + 0.36)], False)
    assert found.between == pytest.approx(0.36 / (3 * 3 * CASE.slices))


def test_phases_add_up_to_the_step() -> None:
    step = _step(CASE, KNOWN)
    phases = phases_of(step.ops, 2 * step.seconds, 0.25)
    assert sum(phases.values()) == pytest.approx(2 * step.seconds, rel=1e-12)
    assert phases["update"] == 0.002


def test_modules_and_the_rest_add_up_to_the_step() -> None:
    step = _step(CASE, KNOWN)
    rows = module_rows(step, factors_of([step], False))
    assert sum(row["seconds"] for row in rows) == pytest.approx(step.seconds, rel=1e-12)
    assert sum(row["share"] for row in rows) == pytest.approx(1.0)
    assert abs(rows[-1]["share"]) < 0.05


def test_the_schedule_has_every_pass_of_every_kind_of_stage() -> None:
    ops = {(op.kind, op.stage, op.slice) for op in three_stages(3).table.ops()}
    assert ops == {
        (kind, stage, slice) for kind in "FIW" for stage in range(3) for slice in range(3)
    }


def test_ops_are_told_by_stage_and_slice() -> None:
    rows = op_rows(CASE, _step(CASE, KNOWN).ops)
    assert len(rows) == 3 * 3 * CASE.slices
    assert {row["stage"] for row in rows} == {"first", "middle", "last"}
    assert np.sum([row["tokens"] for row in rows]) == 9 * CASE.tokens
