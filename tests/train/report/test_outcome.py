"""The fields that scripts read at the end of a run."""

from pathlib import Path

from penstock.schedules import build
from penstock.sim import simulate
from penstock.train.report.outcome import Compared, Ran, RunOutcome, outcome_record

RAN = Ran(
    Path("runs/mine"),
    losses=[4.0 - step / 10 for step in range(20)],
    tokens=2_000,
    seconds=[0.5] * 20,
    processes=2,
    cores=2,
    slices=1,
    replans=True,
    checkpoint=Path("runs/mine/checkpoints/step-00000020"),
    export="",
)


def test_a_run_that_was_told_to_stop_has_its_figures_and_is_not_finished() -> None:
    record = outcome_record(RunOutcome(RAN, False))
    assert (record["finished"], record["steps"], record["loss"]) == (False, 20, RAN.losses[-1])
    assert (record["tokens_per_second"], record["export"]) == (200.0, None)
    assert record["schedules"] == record["left_out"] == []


def test_a_run_that_had_nothing_left_to_train_has_no_figures() -> None:
    record = outcome_record(RunOutcome(RAN._replace(losses=[], seconds=[], tokens=0), True))
    assert record["steps"] == 0
    figures = ("loss", "first_mean_loss", "last_mean_loss", "tokens_per_second")
    assert [record[name] for name in figures] == [None] * 4


def test_times_and_peaks_are_those_of_each_schedule() -> None:
    timeline = simulate(build("1f1b", devices=2, microbatches=2))
    (told,) = outcome_record(RunOutcome(RAN, True, [Compared("1f1b", timeline, None, timeline)]))[
        "schedules"
    ]
    assert told["measured_seconds"] == told["predicted_seconds"] == float(timeline.makespan)
    assert told["predicted_bubble"] == float(timeline.bubble_makespan)
    assert told["predicted_seconds_on_cores"] is None
    assert told["measured_peak"] == told["predicted_peak"] == [int(p) for p in timeline.peak]
