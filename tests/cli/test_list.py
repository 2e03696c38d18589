import subprocess
import sys

import pytest

from cli.conftest import Penstock
from penstock.schedules import registry


def test_every_schedule_is_listed_in_the_order_of_the_registry(penstock: Penstock) -> None:
    answer = penstock("list")
    assert (answer.code, answer.err) == (0, "")
    schedules, conditions = (part.splitlines() for part in answer.out.split("\n\n"))
    assert schedules[0].split() == ["name", "title", "takes", "paper"]
    assert [line.split()[0] for line in schedules[2:]] == list(registry())
    assert len(conditions[2:]) == sum(
        len(spec.options) + len(spec.needs) for spec in registry().values()
    )
    words = [line.split(maxsplit=2) for line in conditions[2:]]
    assert [
        "dualpipev",
        "needs",
        "m >= 2p: there are at least as many microbatches as stages",
    ] in words


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


START_UP = 3.0
"""Times the CPU seconds that importing numpy and typer takes; 0.2 s on a machine that is free."""

REPORT = """
import resource, sys
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, *sys.modules, file=sys.stderr)
"""


@pytest.mark.processes
@pytest.mark.parametrize("line", ["list", "show seq1f1b -p 8 -m 16 -k 4"])
def test_short_commands_start_fast_and_load_neither_compiler_nor_torch(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least of five in turn with the measure: the first call may write byte code, and other
    work on a machine makes caches colder."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    command = f"from penstock.cli.main import main; assert main({line.split()}) == 0"
    pairs = [(_report("import numpy, typer.main, rich.table"), _report(command)) for _ in range(5)]
    assert not {"numba", "torch"} & set(pairs[0][1][1:])
    base, used = (min(float(report[0]) for report in reports) for reports in zip(*pairs))
    assert used < START_UP * base


def _report(statement: str) -> list[str]:
    """CPU seconds that a new process took for a statement, and the modules that it loaded."""
    command = [sys.executable, "-c", statement + REPORT]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr.split()
