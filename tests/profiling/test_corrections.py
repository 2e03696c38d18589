"""What a straight line leaves over: slices that were measured are estimated as they were."""

from dataclasses import replace

import pytest

from penstock.cluster.profile_file import machine_of
from penstock.estimate.measured_times import ProfiledTimes
from penstock.profiling.case import ProfileCase
from penstock.profiling.corrections import MOST_CORRECTED, correction_rows, other_cuts
from penstock.profiling.in_step import StepOps, factors_of
from penstock.profiling.sizes import whole_unit
from profiling.made_up import CASE, profile
from profiling.test_in_step import KNOWN, made_step


def bent(case: ProfileCase, factor: float) -> StepOps:
    """A step whose ops take so many times what a line says."""
    step = made_step(case, KNOWN)
    return replace(step, ops={op: factor * seconds for op, seconds in step.ops.items()})


def test_the_step_is_cut_in_other_ways_as_far_as_slices_have_tokens() -> None:
    assert [case.slices for case in other_cuts(CASE)] == [1, 16]
    assert [case.slices for case in other_cuts(replace(CASE, slices=1))] == [4]
    assert [case.slices for case in other_cuts(replace(CASE, tokens=128))] == [1]


def test_a_line_that_fits_leaves_nothing_over() -> None:
    steps = [made_step(case, KNOWN) for case in (CASE, *other_cuts(CASE))]
    rows = correction_rows(steps, factors_of(steps))
    assert [row["factor"] for row in rows] == pytest.approx([1.0] * len(rows), rel=1e-6)
    assert {row["part"] for row in rows} == {"forward", "inputs", "weights", "head"}


def test_measured_slices_are_estimated_as_measured_whatever_the_line_says() -> None:
    """Short slices take less and whole sequences more than a straight line through all."""
    whole, short = other_cuts(CASE)
    steps = [bent(CASE, 1.0), bent(whole, 1.3), bent(short, 0.8)]
    factors = factors_of(steps)
    record = profile(
        in_step=factors.in_step,
        fixed_seconds=factors.fixed,
        corrections=correction_rows(steps, factors),
    )
    gpu = machine_of(record, "ours").cluster.gpu
    times = ProfiledTimes(CASE.model, CASE.model, gpu, 1.0, "flash2", False)
    for step in steps:
        layers = [times.seconds(unit) for unit in step.units]
        for kind, seconds in zip("FIW", zip(*layers)):
            assert sum(seconds) == pytest.approx(step.seconds_of(kind, 1).sum(), rel=0.02)
    between = times.seconds(whole_unit(32, 128)).forward
    line = replace(times, gpu=replace(gpu, measured=replace(times.kernels, corrections={})))
    ratio = between / line.seconds(whole_unit(32, 128)).forward
    assert 1 / MOST_CORRECTED < ratio < MOST_CORRECTED
