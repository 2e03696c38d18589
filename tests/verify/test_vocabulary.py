"""Vocabulary passes: equal to one process, and not without any one of their collectives."""

from dataclasses import replace

import pytest

from penstock.schedules import find, registry
from penstock.transform import spread_vocabulary
from penstock.verify.cases import CaseSizes, smallest, trials_of
from penstock.verify.variants import VARIANTS, Trial
from penstock.verify.verifier import TrialJob, Verifier
from verify import mistakes

pytestmark = [pytest.mark.torch, pytest.mark.processes]

SMALL = CaseSizes(devices=(2, 4, 3), microbatches=(3, 4, 2, 8), slices=(2, 3, 4))
both_algorithms = pytest.mark.parametrize("algorithm", ["1", "2"])


def _trial(algorithm: str, variant: str = "labels", vocabulary: int = 41) -> Trial:
    """On two devices, with words that cannot be shared evenly."""
    spec = find("vocab-1f1b")
    schedule = spec.build(spec.case(2, 3, None, None, {"algorithm": algorithm}))
    trials, _ = trials_of(schedule, None, [v for v in VARIANTS if v.name == variant])
    (trial,) = trials
    model = replace(trial.work.model, vocabulary=vocabulary)
    return replace(trial, work=replace(trial.work, model=model))


@both_algorithms
@pytest.mark.parametrize("variant", ["labels", "tied"])
def test_words_that_are_shared_unevenly_change_nothing(
    verifier: Verifier, algorithm: str, variant: str
) -> None:
    row = verifier.row(_trial(algorithm, variant))
    assert row.equal, row.explanation
    assert row.bit_equal is None


@both_algorithms
@pytest.mark.parametrize(
    "mistake",
    [
        mistakes.embeddings_apart,
        mistakes.statistics_apart,
        mistakes.gradients_apart,
        mistakes.empty_output,
        mistakes.empty_input_gradient,
    ],
    ids=lambda mistake: mistake.__name__,
)
def test_leaving_out_any_one_of_the_exchanges_is_found(
    verifier: Verifier, algorithm: str, mistake: TrialJob
) -> None:
    wrong = verifier.row(_trial(algorithm), mistake)
    assert not wrong.equal
    assert wrong.difference.gradient > 1e-3


def test_a_device_alone_has_all_words(verifier: Verifier) -> None:
    spec = find("vocab-1f1b")
    trials, _ = trials_of(spec.build(spec.case(1, 2)), None, VARIANTS[:1])
    assert verifier.row(trials[0]).equal


@pytest.mark.parametrize(
    ("name", "loss"),
    [("interleaved", "T"), ("zb-v", "S"), ("seq1f1b", "S"), ("kfkb", "T"), ("gpipe", "S")],
)
def test_a_schedule_with_passes_gives_what_one_process_gives(
    verifier: Verifier, name: str, loss: str
) -> None:
    spec = registry()[name]
    spread = spread_vocabulary(spec.build(smallest(spec, SMALL)), loss=loss)
    tied = [variant for variant in VARIANTS if variant.name == "tied"]
    (trial,), _ = trials_of(spread, None, tied)
    row = verifier.row(trial)
    assert row.equal, row.explanation
