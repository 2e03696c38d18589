"""`simulate` and `compare` with a profile: the same times as an estimate with it."""

import re
from json import dumps
from pathlib import Path

import pytest

from cli.conftest import Penstock
from profiling.made_up import SENT, profile

SIZES = "--model tiny --tokens 512"


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    path = tmp_path / "here.json"
    sums = [
        {"name": name, "ranks": 2, "sent_bytes": 1024, "bytes_per_second": SENT}
        for name in ("sum", "gather", "message")
    ]
    path.write_text(dumps(profile(machine=MACHINE, collectives=sums)))
    return path


MACHINE = {"device": "cpu", "ranks": 4, "memory_bytes": 2**30, "cores": 1}


@pytest.mark.parametrize(
    ("schedule", "mesh", "axes"),
    [
        ("seq1f1b -k 4", "pipeline=4", "--mesh tensor=1"),
        ("1f1b", "pipeline=2,tensor=2", "--mesh tensor=2"),
        ("zb-h1", "pipeline=2,replicas=2", "--mesh replicas=2 --shard full"),
    ],
)
def test_a_simulated_step_takes_what_an_estimate_says(
    penstock: Penstock, measured: Path, schedule: str, mesh: str, axes: str
) -> None:
    devices, shard = mesh[len("pipeline=")], axes.partition("--shard ")[2] or "none"
    replicas = 2 if "replicas" in mesh else 1
    said = penstock(
        f"estimate --profile {measured} {SIZES} --batch-tokens {2048 * replicas} --json "
        f"--schedule {schedule} --mesh {mesh} --shard {shard}"
    ).data
    found = penstock(
        f"simulate {schedule} -p {devices} -m 4 {axes} --profile {measured} {SIZES} --json"
    ).data
    assert found["makespan"] == said["step_seconds"]
    assert found["hardware"] == str(measured)


def test_schedules_are_compared_with_measured_times(penstock: Penstock, measured: Path) -> None:
    asked = f"-p 2 -m 4 --profile {measured} {SIZES}"
    both = penstock(f"compare 1f1b zb-h1 {asked} --json").data
    each = [penstock(f"simulate {name} {asked} --json").data for name in ("1f1b", "zb-h1")]
    assert [row["makespan"] for row in both] == [row["makespan"] for row in each]
    head = penstock(f"compare 1f1b zb-h1 {asked}").out.splitlines()[0]
    assert head.split("  ")[0] == "name"
    assert "makespan ms" in head


@pytest.mark.parametrize("verb", ["simulate 1f1b", "compare 1f1b gpipe"])
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--profile here.json", "--profile needs a model"),
        (f"{SIZES} --profile a.json --hardware h200", "--hardware and --profile both say what"),
        (f"{SIZES} --times F=2", "--times and --model both give times or sizes"),
        (f"{SIZES} --profile none.json", "cannot read 'none.json'"),
    ],
)
def test_what_contradicts_itself_is_refused(
    penstock: Penstock, verb: str, flags: str, said: str
) -> None:
    answer = penstock(f"{verb} -p 2 -m 4 {flags}")
    assert answer.code == 2
    assert said in answer.err
    assert "hint: " in answer.err


def test_a_small_model_is_estimated_in_numbers_that_are_not_0(
    penstock: Penstock, measured: Path
) -> None:
    said = penstock(
        f"estimate --profile {measured} {SIZES} --batch-tokens 2048 --schedule 1f1b "
        "--mesh pipeline=4"
    ).out
    assert "MiB of one rank of each device" in said
    assert re.search(r"device 0 needs [1-9][\d.]* MiB of 1 GiB and fits with", said)
