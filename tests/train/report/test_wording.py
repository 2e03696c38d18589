"""The report says what was learnt, compared and left behind; the README shows one as it is."""

import re
import shlex
from fractions import Fraction
from pathlib import Path

import pytest

from penstock.cost.hardware import hardware
from penstock.cost.transformer import TransformerCost
from penstock.cost.workload import Workload
from penstock.draw.svg.picture import render
from penstock.schedules import build
from penstock.sim import simulate
from penstock.train.config.load import load
from penstock.train.loop.setup import layout_of
from penstock.train.report.outcome import Compared, Ran, RunOutcome
from penstock.train.report.wording import drawn, learnt, memory_table, plan_table, time_table, words

ROOT = Path(__file__).parents[3]
RAN = Ran(
    Path("runs/quickstart"),
    losses=[5.0 - step / 40 for step in range(120)],
    tokens=491_520,
    seconds=[0.5] * 120,
    processes=4,
    cores=2,
    slices=4,
    replans=True,
    checkpoint=Path("runs/quickstart/checkpoints/step-00000120"),
    export="runs/quickstart/export",
)


def of_schedule(name: str, slices: int, shared: Fraction | None) -> Compared:
    """A comparison of a simulation with itself."""
    schedule = build(name, devices=4, microbatches=4, slices=slices)
    model = layout_of(load(ROOT / "examples/quickstart.toml"), 4).model
    workload = Workload(model, ((1024 // slices,) * slices,) * 4, (1, 1, 1, 1))
    timeline = simulate(schedule, TransformerCost(workload, hardware("h200")))
    return Compared(name, timeline, shared, timeline)


@pytest.fixture(scope="module")
def found() -> list[Compared]:
    """What the quickstart compares."""
    log = load(ROOT / "examples/quickstart.toml").log
    return [
        of_schedule("seq1f1b", 4, Fraction(1)),
        *(of_schedule(name, 1, Fraction(1)) for name in log.compare),
    ]


def test_the_loss_is_a_mean_of_steps_and_the_pace_that_of_all() -> None:
    first = learnt(RAN).splitlines()[0]
    assert first == (
        "loss 4.888 -> 2.138 (means of 10 steps) after 120 steps, 491,520 tokens; 8,192 tokens/s"
    )


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([5.0, 4.0, 3.0, 2.0, 1.0], "loss 4.500 -> 1.500 (means of 2 steps) after 5 steps,"),
        ([5.0, 4.0, 3.0], "loss 5.000 -> 3.000 after 3 steps,"),
        ([5.0], "loss 5.000 after 1 step,"),
    ],
)
def test_of_few_steps_the_first_and_the_last_ones_are_compared(
    losses: list[float], said: str
) -> None:
    """Means of all steps would be equal, whatever was learned."""
    assert learnt(RAN._replace(losses=losses)).startswith(said)


def test_a_run_that_had_nothing_left_to_train_says_so() -> None:
    assert "no step was left" in learnt(RAN._replace(losses=[], seconds=[], tokens=0))


def test_a_run_that_was_timed_only_in_part_has_the_pace_of_that_part() -> None:
    assert "8,192 tokens/s" in learnt(RAN._replace(seconds=[0.5] * 20))


def test_plans_are_listed_with_their_predictions_and_reasons() -> None:
    assert plan_table(RAN) == []
    begun = {"step": 0, "plan": "1f1b", "why": "the plan of the start"}
    changed = {"step": 20, "plan": "1f1b+group2", "why": "transfers take 8.00 ms"}
    (text,) = plan_table(RAN._replace(plans=[begun, {**changed, "before": 0.5, "after": 0.4}]))
    rows = [re.split(r"  +", line.strip()) for line in text.splitlines()[1:]]
    assert rows[0] == ["from step", "plan", "before", "with it", "why"]
    assert rows[-2:] == [
        ["1", "1f1b", "-", "-", "the plan of the start"],
        ["21", "1f1b+group2", "0.500", "0.400", "transfers take 8.00 ms"],
    ]


def test_scarce_cores_are_predicted_apart_and_said(found: list[Compared]) -> None:
    text = time_table(RAN, found)
    assert re.search(r"a core each +bubble +2 cores +measured", text)
    assert "4 processes share 2 cores" in text


def test_enough_cores_need_no_second_prediction(found: list[Compared]) -> None:
    text = time_table(RAN._replace(cores=8), [each._replace(shared=None) for each in found])
    assert re.search(r"schedule +predicted +bubble +measured", text)
    assert "cores" not in text


def test_memory_has_a_column_for_each_device(found: list[Compared]) -> None:
    lines = memory_table(found).splitlines()
    assert lines[0] == "peak memory of a step in MB, in addition to weights and optimizer"
    of_cells = memory_table(found, ranks=4).splitlines()
    assert of_cells[0] == f"{lines[0]}, on that of the 4 ranks of a device that holds most"
    assert of_cells[1:] == lines[1:]
    assert lines[1].split()[-2:] == ["device", "3"]
    assert [line.split()[:2] for line in lines[3:]] == [
        ["seq1f1b", "predicted"],
        ["seq1f1b", "measured"],
        ["1f1b", "predicted"],
        ["1f1b", "measured"],
    ]


def test_communicators_are_listed_where_there_are_some(found: list[Compared]) -> None:
    over_nccl = found[0]._replace(communication=[256 << 20, 384 << 20, 384 << 20, 256 << 20])
    lines = memory_table([over_nccl, found[1]]).splitlines()
    assert lines[5].split() == ["seq1f1b", "communicators", "268.44", "402.65", "402.65", "268.44"]
    assert len(lines) == 8


def test_the_verdict_is_the_ratio_of_peaks_and_of_predicted_times(found: list[Compared]) -> None:
    one, other = found
    memory, time = one.peak / other.peak, one.predicted.makespan / other.predicted.makespan
    (line,) = [
        line for line in words(RunOutcome(RAN, True, found)).splitlines() if " needs " in line
    ]
    assert line.startswith(f"seq1f1b needs {memory:.2f} of the memory of 1f1b")
    assert line.endswith(f" {float(time):.2f} of its time")


def test_without_another_schedule_there_is_no_verdict(found: list[Compared]) -> None:
    assert " needs " not in words(RunOutcome(RAN, True, found[:1]))


def test_what_is_not_there_is_not_named(found: list[Compared]) -> None:
    assert "safetensors" not in words(RunOutcome(RAN._replace(export=""), True, found))
    assert "pipeline.slices" not in words(RunOutcome(RAN._replace(slices=1), True, found))


def test_what_to_try_next_can_be_typed(found: list[Compared]) -> None:
    text = words(RunOutcome(RAN, True, found))
    assert "penstock train runs/quickstart/config.toml --set run.steps=240\n" in text
    assert "--set run.steps=240 --set optimizer.schedule_steps=240\n" in text
    assert "schedule_steps" not in words(RunOutcome(RAN._replace(replans=False), True, found))
    assert (
        "--set pipeline.slices=8 --set run.directory=runs/quickstart-8 --set checkpoint.export="
        in text
    )


def test_what_to_try_next_can_be_typed_also_for_a_folder_with_spaces_and_quotes(
    found: list[Compared],
) -> None:
    folder = "runs/it's mine"
    text = words(RunOutcome(RAN._replace(folder=Path(folder)), True, found))
    lines = text[text.index("try next") :].splitlines()[1:]
    commands = [shlex.split(line[line.index("penstock") :]) for line in lines]
    assert [each[2] for each in commands[:3]] == [f"{folder}/config.toml"] * 3
    assert [len(each) for each in commands] == [5, 7, 9, 3]
    assert f"run.directory={folder}-8" in commands[2]


def test_a_picture_is_in_seconds_and_megabytes(found: list[Compared]) -> None:
    predicted, measured = drawn(found[0])
    assert [predicted.name, measured.name] == [
        "seq1f1b, predicted (seconds, MB)",
        "seq1f1b, measured (seconds, MB)",
    ]
    assert predicted.makespan == found[0].predicted.makespan
    assert [peak * 10**6 for peak in measured.peak] == list(found[0].measured.peak)
    shown = re.findall(r"peak ([\d.]+)<", render([predicted, measured]))
    assert {round(float(peak), 3) for peak in shown} == {round(found[0].peak / 10**6, 3)}


def shape_of(text: str) -> list[str]:
    """The lines of a report without its numbers, widths and the columns of its curve."""
    lines = [re.sub(r"[\d.,]*\d%?", "#", line) for line in text.strip().splitlines()]
    lines = [re.sub(r"\u2500+", "-", line) for line in lines]
    return [" ".join(line.split()) for line in lines if not re.search("[\u2581-\u2588]", line)]


def test_the_report_in_the_readme_has_the_lines_of_a_report(found: list[Compared]) -> None:
    page = (ROOT / "README.md").read_text()
    (shown,) = re.findall(r"^```text\n(loss .*?)^```$", page, re.M | re.S)
    assert shape_of(shown) == shape_of(words(RunOutcome(RAN, True, found)))
    losses = re.search(r"loss ([\d.]+) -> ([\d.]+)", shown)
    assert losses is not None
    assert float(losses[2]) < float(losses[1]) < 6


def test_a_picture_in_megabytes_has_the_curves_of_the_one_in_bytes(found: list[Compared]) -> None:
    first = found[0]
    for before, after in zip((first.predicted, first.measured), drawn(first)):
        highest = [max(curve.level, default=0) for curve in after.curves]
        assert highest == [max(curve.level, default=0) for curve in before.curves]
        assert after.grain * 10**6 == before.grain
        assert max(after.peak) == max(before.peak) / 10**6
