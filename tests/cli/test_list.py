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


@pytest.mark.processes
@pytest.mark.parametrize(
    ("line", "limit"),
    [("list", 0.5), ("show seq1f1b -p 8 -m 16 -k 4", 1.5)],
)
def test_short_commands_start_fast_and_load_neither_compiler_nor_torch(
    line: str, limit: float
) -> None:
    """The limits are of later calls, in CPU time: the first one may write byte code. The least of
    four counts, as other work on a machine makes caches colder."""
    script = (
        "import resource, sys; from penstock.cli.main import main; code = main(sys.argv[1:]);"
        "used = resource.getrusage(resource.RUSAGE_SELF);"
        "print(code, used.ru_utime + used.ru_stime, *sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, *line.split()]
    runs = [subprocess.run(command, capture_output=True, text=True) for _ in range(5)]
    answers = [run.stderr.split() for run in runs]
    assert [answer[0] for answer in answers] == ["0"] * 5
    assert not {"numba", "torch"} & set(answers[0][2:])
    assert min(float(answer[1]) for answer in answers[1:]) < limit
