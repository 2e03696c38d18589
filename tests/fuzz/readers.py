"""Every format that comes from outside: samples of it, and who reads it how far."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from arch.test_families import LLAMA, LLAMA_3_2_1B, MISTRAL, QWEN
from data.test_tokenizer import described
from files.strategies import FULL, small
from files.test_fuzz import OVERLAPPED
from penstock import files
from penstock.arch.families import from_huggingface
from penstock.arch.parameters import expected_shapes
from penstock.check import check
from penstock.cli.main import main
from penstock.core.shape import MAX_OPS
from penstock.cost.layers import read_layers
from penstock.data.jsonl import JsonLines
from penstock.data.tokenizer import tokenizer
from penstock.errors import RunError, ShapeError
from penstock.files import FORMATS
from penstock.model.io.inventory import refuse_names
from penstock.model.io.safetensors_files import INDEX, locate, read_json, shapes_in
from penstock.schedules import build, registry
from penstock.train.config.load import loads
from penstock.train.config.save import dump
from penstock.train.loop.setup import layout_of

TOML = """\
# a run
[run]
directory = "runs/mine"
steps = 20
[model]
preset = "tiny"
rope_scaling.kind = "linear"
rope_scaling.factor = 2.0
[batch]
length = "1K"
microbatches = 4
[pipeline]
schedule = "seq1f1b"
slices = 4
cut = [256, 256, 256, 256]
options = {}
[optimizer]
betas = [0.9, 0.95]
learning_rate = 3e-4
[data]
source = "text"
paths = ["a/**/*.txt", 'b']
"""
OVERRIDES = ("batch.length=64K", "pipeline.cut=[1, 2]", "model.tied=true")
NUMBERS = ("0.366412213740458", "1e-3", "1/3", "80GB", "64K", "2", ".5", "1,1/2,3", "16*1,4@0")
LINES = (
    "simulate 1f1b -p 4 -m 8 --times F=1,I=1/2 --hop 0.1",
    "check chunkflow -p 2 -m 4 -o groups=1,1/2,3,2",
    "check v-auto -p 4 -m 8 -o limit=3.5 --limit 80GB --sizes act=2GB",
    "show seq1f1b -p 4 -m 4 -k 2 --width 80",
    "compare gpipe 1f1b -p 4 -m 8 --json",
    "list --json",
)


class Reader(NamedTuple):
    """Samples of a format, and what reads a text of it in an empty folder."""

    samples: Sequence[str]
    read: Callable[[str, Path], object]
    share: float = 1.0
    """Of the inputs that each format gets: less where one takes long."""


def _schedule(content: str, _: Path) -> object:
    schedule = files.loads(content)
    assert len(schedule.table) <= MAX_OPS
    return check(schedule)


def _config_json(content: str, folder: Path) -> object:
    path = folder / "config.json"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    model = from_huggingface(read_json(path))
    return len(expected_shapes(model)), model.parameters, model.longest


def _index(content: str, folder: Path) -> object:
    (folder / INDEX).write_bytes(content.encode("utf-8", "surrogatepass"))
    found = locate(folder)
    try:
        return [shapes_in(folder / path) for path in found.values()]
    except RunError:  # there are no such files
        return refuse_names(folder, from_huggingface(LLAMA), found)


def _tokenizer(content: str, folder: Path) -> object:
    path = folder / "tokenizer.json"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    return tokenizer(str(path)).encode_all(["some words", "a line\n", ""])


def _json_lines(content: str, folder: Path) -> object:
    path = folder / "lines.jsonl"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    return list(JsonLines([path], "text", 0).documents())


def _settings(content: str, _: Path) -> object:
    settings = loads(content)
    assert loads(dump(settings)) == settings
    small_enough = settings.batch.microbatches * settings.pipeline.slices <= 256
    return layout_of(settings, 2) if small_enough else None


def _override(content: str, _: Path) -> object:
    return loads(TOML, content.splitlines())


def _option(content: str, _: Path) -> object:
    """The text as the value of every option that there is."""
    for spec in registry().values():
        for option in spec.options:
            try:
                option.read(spec.name, content)
            except ShapeError:
                continue
    return read_layers(content)


def _command_line(content: str, _: Path) -> object:
    if any(64 < int(number[:9]) <= 10**7 for number in re.findall(r"[0-9]+", content)):
        return None  # a large request may take its time
    code = main(content.split())
    assert code in (0, 1, 2)
    return code


_INDEX = {"metadata": {"total_size": 8}, "weight_map": {"lm_head.weight": "model.safetensors"}}
_CONFIGS = (LLAMA, LLAMA_3_2_1B, MISTRAL, {**QWEN, "use_sliding_window": True})

READERS = {
    "text lanes": Reader([FULL, FORMATS["text"].dumps(small())], _schedule),
    "json": Reader([FORMATS["json"].dumps(small())], _schedule),
    "csv": Reader(
        [OVERLAPPED, FORMATS["csv"].dumps(build("1f1b", devices=2, microbatches=3))], _schedule
    ),
    "toml": Reader([TOML], _settings, share=0.5),
    "overrides": Reader(
        ["batch.length=64K", "pipeline.cut=[1, 2]", "model.tied=true"], _override, 0.5
    ),
    "config.json": Reader([json.dumps(config) for config in _CONFIGS], _config_json),
    "index": Reader([json.dumps(_INDEX)], _index),
    "tokenizer.json": Reader([json.dumps(described())], _tokenizer),
    "json lines": Reader(['{"text": "a word", "number": 12}\n{"text": "\\u00e9"}\n'], _json_lines),
    "options": Reader(NUMBERS, _option),
    "command lines": Reader(LINES, _command_line, share=0.1),
}
