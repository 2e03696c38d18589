"""Where bits are not claimed, as on a GPU, a run is compared with one process by distance."""

import json
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

import trial_jobs
import verify_gpu
from penstock.arch.mixture import ExpertMixture
from penstock.errors import RunError
from penstock.schedules import build, find
from penstock.verify.cases import half, one_process, trials_of
from penstock.verify.compare import FROM_ONE_PROCESS, TOLERANCE, Difference
from penstock.verify.variants import ON_DEVICE, VARIANTS, Trial, variants_of, with_low_precision
from penstock.verify.verifier import TrialJob, VerdictRow, Verifier
from verify import mistakes
from verify.small_scale import SMALL

pytestmark = pytest.mark.torch

NOTHING = Difference(0.0, 0.0, "", "")


def _trials() -> dict[str, Trial]:
    spec = find("seq1f1b")
    case = spec.case(2, 2, None, 2)
    halved = half(spec, case, {})
    assert halved is not None
    variants = with_low_precision(variants_of(SMALL))
    trials, _ = trials_of(spec.build(case), spec.build(halved), variants)
    return {trial.variant: trial for trial in trials}


def test_a_gpu_has_the_variants_of_a_cpu_and_some_in_bfloat16() -> None:
    types = {variant.name: variant.dtype for variant in ON_DEVICE["cuda"]}
    low = {"bfloat16", "bfloat16-ragged", "bfloat16-documents"}
    assert types.keys() == {variant.name for variant in VARIANTS} | low
    assert {name for name, dtype in types.items() if dtype == "bfloat16"} == low
    assert set(types.values()) == {"float32", "bfloat16"}


def test_every_type_that_is_run_has_tolerances() -> None:
    for device, variants in ON_DEVICE.items():
        assert {variant.dtype for variant in variants} == TOLERANCE[device].keys()
    assert FROM_ONE_PROCESS.keys() == TOLERANCE["cuda"].keys()


def test_what_is_near_one_process_is_at_least_as_near_as_to_the_oracle() -> None:
    for dtype, limit in FROM_ONE_PROCESS.items():
        assert limit.loss <= TOLERANCE["cuda"][dtype].loss
        assert limit.gradient <= TOLERANCE["cuda"][dtype].gradient


def test_models_that_choose_by_scores_may_choose_otherwise_than_the_oracle_in_bfloat16() -> None:
    """Near ties fall either way where scores are rounded; a lost gradient, of error 1, does not."""
    trial = _trials()["bfloat16"]
    chooses = replace(trial.work.model, mixture=ExpertMixture(experts=4, per_token=2))
    routed = replace(trial, work=replace(trial.work, model=chooses))
    near, lost = NOTHING._replace(gradient=0.5), NOTHING._replace(gradient=1.0)
    assert VerdictRow(routed, near, None, 0.0, NOTHING).equal
    assert not VerdictRow(routed, lost, None, 0.0, NOTHING).equal
    assert not VerdictRow(routed, near, None, 0.0, near).equal
    assert not VerdictRow(trial, near, None, 0.0, NOTHING).equal
    precise = replace(routed, dtype="float32")
    assert not VerdictRow(precise, near, None, 0.0, NOTHING).equal


def test_sizes_for_a_gpu_are_those_that_fused_attention_serves() -> None:
    schedule = build("seq1f1b", devices=4, microbatches=8, slices=4)
    trials, _ = trials_of(schedule, None, ON_DEVICE["cuda"])
    for trial in trials:
        assert trial.work.model.head_size % 8 == 0
        short = trial.variant == "lengths"  # it is about sequences as short as they can be
        assert short or min(min(lengths) for lengths in trial.lengths) >= 64
        assert not trial.bitwise
    ragged = next(trial for trial in trials if trial.variant == "bfloat16-ragged")
    assert len(set(ragged.lengths[0])) > 1
    documents = next(trial for trial in trials if trial.variant == "bfloat16-documents")
    starts = {start for row in documents.work.batch.documents for start in row}
    ends = {sum(documents.lengths[0][:count]) for count in range(1, 4)}
    assert ends & starts
    assert ends - starts


def test_two_replicas_in_one_process_are_one_batch() -> None:
    trial = _trials()["replicas"]
    single = one_process(trial)
    assert single.processes == 1
    assert single.schedule.shape.microbatches == trial.work.batch.microbatches
    assert single.lengths == trial.lengths * 2


def test_a_run_is_compared_with_one_process_and_is_near(verifier: Verifier) -> None:
    trials = _trials()
    for variant in ("float32", "bfloat16", "replicas"):
        row = verifier.row(trials[variant])
        assert row.explanation == ""
        assert row.back_end == "gloo"
        assert row.unequal_bits is None
        assert row.from_one_process is not None
        assert row.from_one_process.gradient <= 1e-6  # the kernels of a CPU give the same bits
        assert row.difference.gradient > 0


@pytest.mark.parametrize(
    ("mistake", "variant"),
    [
        (mistakes.relay_of_zeros, "bfloat16-ragged"),
        (mistakes.empty_transfer, "bfloat16"),
        (mistakes.exchanged_slices, "bfloat16"),
        (mistakes.own_labels_only, "replicas"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_mistake_is_beyond_both_tolerances_in_low_precision_too(
    verifier: Verifier, mistake: TrialJob, variant: str
) -> None:
    row = verifier.row(_trials()[variant], mistake)
    assert not row.equal
    assert row.from_one_process is not None
    assert row.difference.gradient > row.tolerance.gradient
    assert row.from_one_process.gradient > FROM_ONE_PROCESS[row.trial.dtype].gradient
    assert " from one process: " in row.explanation


def test_documents_that_see_each_other_are_found_in_low_precision(verifier: Verifier) -> None:
    row = verifier.row(_trials()["bfloat16-documents"], mistakes.one_long_document)
    assert row.difference.gradient > row.tolerance.gradient


def test_a_run_that_is_far_from_one_process_is_not_equal() -> None:
    row = VerdictRow(_trials()["float32"], NOTHING, None, 0.0, NOTHING, "nccl")
    far = replace(row, from_one_process=Difference(inf, 2e-5, "w", "so it is"))
    assert (row.equal, row.explanation) == (True, "")
    assert (far.equal, far.explanation) == (
        False,
        "w differs by 2e-05 from one process: so it is; the loss differs by inf from one process",
    )


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the script take sizes that every machine has time for."""
    monkeypatch.setattr(verify_gpu, "CUDA", SMALL)


@pytest.mark.processes
@pytest.mark.matrix
@pytest.mark.usefixtures("small")
def test_the_script_prints_a_row_for_each_run_and_counts_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "rows"
    words = f"--device cpu --ranks 2 --schedules zb-h1 --limit 100 --json {file}"
    assert verify_gpu.main(words.split()) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    rows = [json.loads(line) for line in lines]
    assert last.startswith("6 of 6 equal, ")
    assert file.read_text().splitlines() == lines
    assert {(row["name"], row["variant"], row["run"]) for row in rows} == {
        ("zb-h1", variant, run)
        for variant in ("float32", "bfloat16", "replicas")
        for run in ("plain", "synchronised")
    }
    assert {(row["device"], row["ranks"], row["back_end"]) for row in rows} == {("cpu", 2, "gloo")}
    assert all(row["difference_from_one_process"] <= 1e-6 for row in rows)


@pytest.mark.matrix
@pytest.mark.processes
@pytest.mark.long
@pytest.mark.usefixtures("small")
def test_the_script_goes_on_after_a_row_that_fails(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = {"plain": mistakes.one_fails, "synchronised": trial_jobs.synchronised_trial}
    monkeypatch.setattr(verify_gpu, "JOBS", jobs)
    words = "--device cpu --ranks 2 --schedules 1f1b --variants float32"
    assert verify_gpu.main(words.split()) == 1
    failed, fine, last = capfd.readouterr().out.splitlines()
    assert "the device is gone" in json.loads(failed)["error"]
    assert json.loads(failed)["equal"] is False
    assert json.loads(fine)["equal"] is True
    assert last.startswith("1 of 2 equal, ")


def test_a_row_has_its_limit_and_processes_have_longer_to_start() -> None:
    limits = []

    class Members:
        limit = 0.0

        def run(self, job: object, *_: object) -> None:
            limits.append((getattr(job, "__name__", ""), self.limit))

    class Judge:
        members = Members()

        def crew_for(self, trial: Trial) -> Members:
            return self.members

        def row(self, trial: Trial, job: object) -> None:
            limits.append(("row", self.members.limit))
            raise RunError("no answer after 60 s")

    row = verify_gpu.Row(_trials()["float32"], "plain")
    record = verify_gpu.judged(Judge(), row, 60.0)  # type: ignore[arg-type]
    assert limits == [("ready", verify_gpu.START), ("row", 60.0)]
    assert (record["name"], record["equal"]) == ("seq1f1b", False)
    assert record["error"] == "no answer after 60 s"
