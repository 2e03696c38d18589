"""A profile of a tiny model on the host: what it has, and identities that it satisfies."""

from collections.abc import Callable
from json import dumps, loads
from pathlib import Path
from typing import Any

import pytest

from penstock.arch.parameters import expected_shapes
from penstock.cli.main import main
from penstock.cluster.measured import FACTORS, FIXED_PARTS
from penstock.cluster.profile_file import machine_of
from penstock.profiling.report import report_page
from penstock.profiling.tables import op_table, profile_tables
from profiling.made_up import CASE, profile

pytestmark = [pytest.mark.torch, pytest.mark.processes, pytest.mark.long]
SMALL = ["--tokens", "64", "-k", "2", "--steps", "1", "--first", "1"]


@pytest.fixture(scope="module")
def record(crews: Callable[[int], Any]) -> dict[str, Any]:
    from dataclasses import replace

    from penstock.profiling.measure.run import measure_rank, profile_record
    from penstock.profiling.measure.timing import Rounds

    case = replace(CASE, tokens=64, slices=2)
    return profile_record(case, crews(1).run(measure_rank, case, "cpu", Rounds(1, 2, 1)))


def test_a_profile_is_plain_json_that_can_be_estimated_with(record: dict[str, Any]) -> None:
    again = loads(dumps(record))
    kernels = machine_of(again, "here").kernels
    assert kernels.precision == "fp32"
    assert ({*kernels.in_step}, {*kernels.fixed}) == ({*FACTORS}, {*FIXED_PARTS})


def test_phases_and_modules_add_up_to_the_step(record: dict[str, Any]) -> None:
    step = record["step"]["seconds"]
    assert sum(record["phases"].values()) == pytest.approx(step, rel=1e-9)
    assert sum(row["seconds"] for row in record["modules"]) == pytest.approx(step, rel=1e-9)


def test_each_parameter_has_a_gradient_a_main_weight_and_two_moments(
    record: dict[str, Any],
) -> None:
    parameters = sum(_elements(shape) for shape in expected_shapes(CASE.sizes).values())
    memory = record["memory"]
    assert memory["weights_bytes"] == 0  # in 32 bits the main weights are computed with
    assert memory["gradients_bytes"] == 4 * parameters
    assert memory["optimizer_bytes"] == 12 * parameters
    held = memory["allocated_bytes"] - memory["step_bytes"]
    assert held == 16 * parameters


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def test_ops_have_every_pass_slice_and_kind_of_stage(record: dict[str, Any]) -> None:
    assert len(record["ops"]) == 3 * 3 * 2
    assert all(row["seconds"] > 0 for row in record["ops"])
    assert len(record["memory"]["over_time"]) >= len(record["ops"])


def test_a_page_shows_every_table(record: dict[str, Any]) -> None:
    page = report_page(record)
    titles = ("The step", "Phases", "Modules", "Ops", "Products", "Attention", "Copies", "Memory")
    assert all(f"<h2>{title}</h2>" in page for title in titles)
    assert page.count("<table>") == page.count("</table>") == len(titles) + 1
    assert len([*profile_tables(record)]) == 9


def test_a_page_has_no_empty_column_and_its_names_are_marked(record: dict[str, Any]) -> None:
    assert all(row["share_of_peak"] is None for row in record["products"])
    page = report_page(record)
    assert "of peak</th>" not in page
    assert "<code>reserved</code>" in page
    assert "`" not in page


def test_stages_come_along_the_model(record: dict[str, Any]) -> None:
    stages = [row[0] for row in op_table(record)[1]]
    assert stages == sorted(stages, key=("first", "middle", "last").index)


def test_estimates_are_compared_with_steps(
    tmp_path: Path, record: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.json"
    path.write_text(dumps(record))
    words = ["profile", "check", str(path), "--case", "tiny:48", "--case", "tiny:64:4:2"]
    assert main([*words, "--steps", "1", "--first", "1", "--json"]) == 0
    rows = loads(capsys.readouterr().out)
    assert [row["status"] for row in rows] == ["measured", "measured"]
    assert all(abs(row["memory_error"]) < 0.05 for row in rows)


@pytest.mark.matrix
def test_pipelines_of_ranks_are_compared_too(
    tmp_path: Path, record: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.json"
    path.write_text(dumps(record))
    words = ["profile", "check", str(path), "--case", "tiny:64:2", "--steps", "1", "--first", "1"]
    assert main([*words, "-p", "2"]) == 2
    assert "profile again with --ranks 2" in capsys.readouterr().err
    path.write_text(dumps(record | {"machine": record["machine"] | {"ranks": 2}}))
    assert main([*words, "-p", "2", "--json"]) == 0
    (row,) = loads(capsys.readouterr().out)
    assert (row["microbatches"], row["status"]) == (2, "measured")
    assert abs(row["memory_error"]) < 0.05


@pytest.mark.matrix
def test_cells_are_run_once_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "cells.jsonl")
    words = ["profile", "matrix", "tiny", *SMALL, "--device", "cpu", "--out", out, "--json"]
    words += ["--cell", "recompute", "--cell", "plain-kernels"]
    assert main(words) == 0
    first = loads(capsys.readouterr().out)
    assert [row["status"] for row in first] == ["measured", "measured", "unsupported"]
    plain, again = (row["memory"]["step_bytes"] for row in first[:2])
    assert again < plain
    assert main(words) == 0
    assert loads(capsys.readouterr().out) == first


def test_collectives_are_measured_by_type_size_and_group(crews: Callable[[int], Any]) -> None:
    from penstock.profiling.measure.copies import MESSAGES, collective_rows

    rows = crews(2).run(collective_rows, "cpu")[0]
    assert {row["name"] for row in rows} == {"sum", "gather", "message"}
    assert len(rows) == 3 * len(MESSAGES)
    kernels = machine_of(profile(collectives=rows), "here").kernels
    known = kernels.collective_seconds("sum", 2, rows[0]["sent_bytes"])
    assert known == pytest.approx(rows[0]["seconds"])
