import subprocess
import sys

import pytest

from cli.conftest import Penstock
from penstock.schedules import find, registry


def test_every_schedule_is_listed_in_the_order_of_the_registry(penstock: Penstock) -> None:
    answer = penstock("list")
    assert answer.code == 0
    assert answer.err.startswith("all take -p and -m; `penstock list NAME` shows")
    head, _, *lines = answer.out.splitlines()
    assert head.split() == ["name", "title", "takes"]
    assert [line.split()[0] for line in lines if line[0] != " "] == list(registry())


def test_the_list_has_the_title_and_the_flags_of_each_schedule(penstock: Penstock) -> None:
    text = " ".join(penstock("list").out.split())
    for spec in registry().values():
        flags = {"-v": spec.chunks is None, "-k": spec.sliced, "-o": bool(spec.options)}
        if len(spec.title) < 50:  # a longer one may go on below its flags
            row = [spec.name, spec.title, *(flag for flag, taken in flags.items() if taken)]
            assert " ".join(row) in text


@pytest.mark.parametrize("columns", [None, 60, 80, 132])
@pytest.mark.parametrize("line", ["list", f"list {' '.join(registry())}"])
def test_no_line_is_longer_than_the_terminal(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, line: str, columns: int | None
) -> None:
    """Where there is no terminal, and nobody says its width, lines have 80 columns."""
    monkeypatch.delenv("COLUMNS")
    if columns:
        monkeypatch.setenv("COLUMNS", str(columns))
    answer = penstock(line)
    assert answer.code == 0
    assert max(map(len, answer.out.splitlines())) <= (columns or 80)
    assert max(map(len, answer.err.splitlines()), default=0) <= 80


def test_a_name_is_told_with_paper_flags_options_and_needs(penstock: Penstock) -> None:
    answer = penstock("list chunkflow dualpipev")
    assert (answer.code, answer.err) == (0, "")
    for name, told in zip(("chunkflow", "dualpipev"), answer.out.split("\n\n")):
        spec, text = find(name), " ".join(told.split())
        assert text.startswith(f"{name}: {spec.title} paper {spec.paper} takes -p -m")
        for option in spec.options:
            assert f"-o {option.name}= {option.text}" in text
        for need in spec.needs:
            assert f"needs {need.text}" in text


def test_a_name_that_is_not_known_gets_the_nearest_one(penstock: Penstock) -> None:
    answer = penstock("list seq1fb")
    assert (answer.code, answer.out) == (2, "")
    assert "hint: did you mean 'seq1f1b'?" in answer.err


def test_json_of_a_name_has_that_one(penstock: Penstock) -> None:
    named, every = penstock("list seq1f1b --json").data, penstock("list --json").data
    assert named == [row for row in every if row["name"] == "seq1f1b"]


def test_json_has_the_contract_fields(penstock: Penstock) -> None:
    answer = penstock("list --json")
    assert (answer.code, answer.err) == (0, "")
    assert [row["name"] for row in answer.data] == list(registry())
    for row, spec in zip(answer.data, registry().values()):
        assert row == {
            "name": spec.name,
            "title": spec.title,
            "paper": spec.paper,
            "needs": [need.text for need in spec.needs],
            "options": [{"name": option.name, "text": option.text} for option in spec.options],
            "chunks": spec.chunks,
            "slices": spec.sliced,
        }


REPORT = """
import resource, sys
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, *sys.modules, file=sys.stderr)
"""


@pytest.mark.processes
@pytest.mark.parametrize(("line", "limit"), [("list", 3.0), ("show seq1f1b -p 8 -m 16 -k 4", 4.0)])
def test_short_commands_start_fast_and_load_neither_compiler_nor_torch(
    line: str, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limits are multiples of the CPU time of importing numpy and typer. The least of five in turn
    with that counts: the first call may write byte code, and other work makes caches colder."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    command = f"from penstock.cli.main import main; assert main({line.split()}) == 0"
    pairs = [(_report("import numpy, typer.main, rich.table"), _report(command)) for _ in range(5)]
    assert not {"numba", "torch"} & set(pairs[0][1][1:])
    base, used = (min(float(report[0]) for report in reports) for reports in zip(*pairs))
    assert used < limit * base


def _report(statement: str) -> list[str]:
    """CPU seconds that a new process took for a statement, and the modules that it loaded."""
    command = [sys.executable, "-c", statement + REPORT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stderr.splitlines()[-1].split()
