"""The page about training shows configurations and commands that work as they are written."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.train.config.load import loads
from penstock.train.config.settings import Settings
from penstock.train.loop.setup import layout_of

PAGE = Path(__file__).parents[2] / "docs/howto/train.md"
TEXT = PAGE.read_text()
FILES = dict(re.findall(r"^```toml (\S+)\n(.*?)^```$", TEXT, re.M | re.S))
COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"^```\n(.*?)^```$", TEXT, re.M | re.S)
    for line in block.splitlines()
    if line.startswith("penstock train first.toml")
]


def changed(words: list[str]) -> Settings:
    """The settings of a command line."""
    changes = [word for flag, word in pairwise(words) if flag == "--set"]
    return loads(FILES[words[2]], changes)


@pytest.mark.parametrize("name", FILES)
def test_every_configuration_of_the_page_is_whole(name: str) -> None:
    assert loads(FILES[name]).run.steps > 0


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_of_the_page_has_a_layout(words: list[str]) -> None:
    pipeline = changed(words).pipeline
    processes = int(words[words.index("-n") + 1]) if "-n" in words else pipeline.devices
    assert layout_of(changed(words), processes).schedule.shape.devices == pipeline.devices


def test_the_global_batch_stays_the_same_under_another_layout() -> None:
    section = TEXT.split("## Another layout")[1].split("## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("penstock train")]
    batches = [changed(shlex.split(line, comments=True)) for line in lines]
    assert len({each.mesh.replicas * each.batch.microbatches for each in batches}) == 1
    assert len({(each.pipeline.schedule, each.pipeline.slices) for each in batches}) > 2
