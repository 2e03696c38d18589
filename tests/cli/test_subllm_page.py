"""The page about leaving out tokens has the numbers that the commands print."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.arch.presets import model
from penstock.cli.main import main

PAGE = Path(__file__).parents[2] / "docs/concepts/subllm.md"
NAMES = ("1f1b", "interleaved", "zb-h1", "zb-v")


def table(name: str) -> list[str]:
    """The rows of a table, its head apart."""
    text = PAGE.read_text().split(f"<!-- {name} -->")[1].split("<!-- end -->")[0]
    return text.strip().splitlines()[2:]


def bubble_row(name: str, found: dict[str, float]) -> str:
    return f"| `{name}` | {found['makespan'] * 1000:.1f} | {found['bubble_makespan']:.1%} |"


def test_the_table_of_bubbles_is_that_of_simulate(capsys: pytest.CaptureFixture[str]) -> None:
    rows = []
    for name in NAMES:
        sizes = ["-p", "4", "-m", "16", "--model", "subllm-1.3b", "--tokens", "4096", "--json"]
        assert main(["simulate", name, *sizes]) == 0
        rows.append(bubble_row(name, json.loads(capsys.readouterr().out)))
    assert table("bubbles") == rows


def test_the_table_of_flops_is_that_of_the_model() -> None:
    kept = model("subllm-1.3b")
    plain = replace(kept, subsampling=None)
    rows = []
    for length in (2048, 4096, 8192, 32768):
        flops = [each.flops_per_token + each.flops_per_pair * length / 2 for each in (kept, plain)]
        rows.append(f"| {length} | {flops[0] / flops[1]:.3f} |")
    assert table("ratios") == rows
