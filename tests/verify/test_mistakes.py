"""A verifier that never says no proves nothing: mistakes that are put in are found."""

import pytest

from forked_crew import ForkedCrew
from penstock.errors import RunError
from penstock.schedules import find
from penstock.verify.cases import half, trials_of
from penstock.verify.trial import run_trial
from penstock.verify.variants import Trial
from penstock.verify.verifier import TrialJob, Verifier
from verify import mistakes

pytestmark = pytest.mark.torch

NAME = "seq1f1b"


def _trial(variant: str) -> Trial:
    spec = find(NAME)
    case = spec.case(2, 2, None, 2)
    halved = half(spec, case, {})
    assert halved is not None
    trials, _ = trials_of(spec.build(case), spec.build(halved))
    return next(trial for trial in trials if trial.variant == variant)


@pytest.mark.parametrize(
    ("mistake", "variant", "blamed"),
    [
        (mistakes.relay_of_zeros, "ragged", "input_layernorm"),
        (mistakes.empty_transfer, "float32", "model.layers.3."),
        (mistakes.exchanged_slices, "layers", ""),
        (mistakes.one_long_document, "documents", ""),
        (mistakes.own_labels_only, "replicas", ""),
        (mistakes.weights_twice, "labels", "model.layers."),
        (mistakes.untied, "tied", "model.embed_tokens.weight"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_mistake_is_found_and_the_parameter_that_suffers_most_is_named(
    verifier: Verifier, mistake: TrialJob, variant: str, blamed: str
) -> None:
    trial = _trial(variant)
    assert verifier.row(trial).equal
    wrong = verifier.row(trial, mistake)
    assert not wrong.equal
    assert wrong.difference.gradient > 1e-3
    assert blamed in wrong.difference.parameter
    assert wrong.difference.parameter in wrong.explanation


def test_a_wrong_count_of_labels_shows_in_the_loss(verifier: Verifier) -> None:
    wrong = verifier.row(_trial("replicas"), mistakes.own_labels_only)
    assert wrong.difference.loss == pytest.approx(1.0)
    assert "the loss differs by 1" in wrong.explanation


@pytest.mark.processes
def test_a_transfer_that_is_never_sent_ends_in_an_error_and_not_in_silence() -> None:
    trial = _trial("float32")
    with ForkedCrew(trial.processes) as crew:
        assert len(crew.run(run_trial, trial)) == trial.processes
        crew.limit = 3.0
        with pytest.raises(RunError, match="no answer after 3 s"):
            crew.run(mistakes.lost_transfer, trial)
