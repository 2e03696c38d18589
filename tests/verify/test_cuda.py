"""On a GPU, over the back end that ranks agree on: the kernels that train are compared."""

from functools import partial

import pytest
import torch

from penstock.schedules import find
from penstock.verify.cases import half, trials_of
from penstock.verify.variants import ON_DEVICE, Trial
from penstock.verify.verifier import Verifier
from trial_jobs import synchronised_trial
from verify import mistakes

pytestmark = [
    pytest.mark.torch,
    pytest.mark.processes,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


def _trials() -> list[Trial]:
    spec = find("seq1f1b")
    case = spec.case(2, 4, None, 4)
    halved = half(spec, case, {})
    assert halved is not None
    return trials_of(spec.build(case), spec.build(halved), ON_DEVICE["cuda"])[0]


@pytest.mark.parametrize("trial", _trials(), ids=lambda trial: trial.variant)
def test_a_variant_is_equal_to_the_oracle_and_to_one_process(
    verifier: Verifier, trial: Trial
) -> None:
    row = verifier.row(trial)
    assert row.explanation == ""
    assert row.back_end in ("nccl", "host")


def test_a_device_that_is_synchronised_between_calls_gives_the_same(verifier: Verifier) -> None:
    row = verifier.row(_trials()[0], partial(synchronised_trial, patience=60.0))
    assert row.explanation == ""


def test_a_mistake_is_found(verifier: Verifier) -> None:
    trial = next(trial for trial in _trials() if trial.variant == "bfloat16-ragged")
    row = verifier.row(trial, mistakes.relay_of_zeros)
    assert not row.equal
