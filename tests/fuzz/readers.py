"""Every format that comes from outside: samples of it, and who reads it how far."""

import json
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import NamedTuple

import torch

from arch.test_families import LLAMA, LLAMA_3_2_1B, MISTRAL, QWEN
from data.records.conversations import CHATML, CHATS
from data.test_tokenizer import described
from files.strategies import FULL, small
from files.test_fuzz import OVERLAPPED
from penstock import files
from penstock.arch.families import from_huggingface
from penstock.arch.limits import LARGEST_OF_MODEL
from penstock.arch.parameters import expected_shapes
from penstock.check import check
from penstock.cli.main import main
from penstock.cluster.read import cluster_from
from penstock.core.shape import MAX_OPS
from penstock.cost.layers import read_layers
from penstock.data.encode import encode_documents
from penstock.data.jsonl import JsonLines
from penstock.data.records.chat import ChatTemplate, find_template
from penstock.data.records.reader import RecordReader
from penstock.data.records.tables import dataset_files
from penstock.data.tokenizer import Bytes, tokenizer
from penstock.errors import RunError, ShapeError
from penstock.estimate.answer import answer_lines
from penstock.estimate.request import layout_from
from penstock.files import FORMATS
from penstock.model.io.inventory import refuse_names
from penstock.model.io.safetensors_files import INDEX, locate, read_json, shapes_in, tensors_in
from penstock.model.layers.rope import frequencies
from penstock.run.process import environment
from penstock.run.process.environment import INTERFACE, LAST_PORT, MOST_RANKS
from penstock.schedules import build, registry
from penstock.train.auto_plan.chosen_plan import (
    PLAN_FILE,
    ChosenPlan,
    plan_differences,
    read_plan,
)
from penstock.train.checkpoint import manifest
from penstock.train.config.load import loads
from penstock.train.config.save import dump
from penstock.train.loop.before_start import refuse_start
from penstock.train.loop.setup import layout_of
from penstock.train.records.metrics import read_metrics, take_back

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
OVERRIDES = (
    *("batch.length=64K", "pipeline.cut=[1, 2]", "model.tied=true", "run.threads=2"),
    *("watch.frozen=4", "checkpoint.resume=old", "optimizer.betas=[0.9, 0.95]"),
)
ENVIRONMENT = """\
RANK=1
WORLD_SIZE=4
LOCAL_RANK=1
LOCAL_WORLD_SIZE=4
MASTER_ADDR=127.0.0.1
MASTER_PORT=29500
GLOO_SOCKET_IFNAME=lo
TORCHELASTIC_USE_AGENT_STORE=True
TORCHELASTIC_RESTART_COUNT=0
PENSTOCK_SECRET=word
"""
LAYERS = "# a line for each kind\nblock x 16: F=1 I=1/2 W=0.5 act=2\nhead: F=3 stash=0\n"
STEPS = '{"step": 1, "loss": 2.5, "tokens": 4096}\n{"step": 2, "loss": 2.25, "tokens": 8192}\n'
CLUSTER = """\
like = "h100"
gpus = 32
[gpu]
memory_gib = 94
peak_tflops = {bf16 = 900, fp32 = 60}
[gpu.reached]
flash2 = [0.35, 0.25]
[machine]
wiring = "direct"
[network]
cards = 4
latency_us = 12.5
"""
ROW = json.dumps(
    {
        "model": {"layers": 4, "hidden": 64, "ffn": 192, "heads": 4, "vocabulary": 256},
        "cluster": "h100:4",
        "tokens": 64,
        "batch_tokens": 256,
        "mesh": "tensor=2,pipeline=2",
        "schedule": "seq1f1b",
        "slices": 2,
        "recompute": "layers=1",
        "fused_norm": False,
    }
)
CHOSEN_PLAN = ChosenPlan(
    asked={"ranks": 2, "device": "cpu", "decided": {"tensor": "2"}},
    machine={"device": "a processor", "cores": 2.0},
    keys={
        "batch": {"rows": 1, "microbatches": 4},
        "pipeline": {"schedule": "1f1b", "devices": 2, "layers": [2, 2], "recompute": "none"},
        "mesh": {"tensor": 1, "shard": "none"},
    },
    words="1f1b on pipeline=2",
    why=["one replica"],
    profile="profile.json",
    seconds=0.5,
    memory=[{"weights": 0, "activations": 1024}],
)
LARGEST_HEAD = 1024
"""Elements up to which the frequencies of a head are computed; more would take long."""
MOST_THREADS = 4096
"""No machine has so many cores; torch would try to start as many threads."""
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


def _written(path: Path, content: str) -> Path:
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    return path


def _schedule(content: str, _: Path) -> object:
    schedule = files.loads(content)
    assert len(schedule.table) <= MAX_OPS
    return check(schedule)


def _config_json(content: str, folder: Path) -> object:
    path = _written(folder / "config.json", content)
    model = from_huggingface(read_json(path))
    for part in (model, model.rope_scaling):
        numbers = vars(part).values() if part else ()
        assert all(number <= LARGEST_OF_MODEL for number in numbers if type(number) in (int, float))
    if model.head_size <= LARGEST_HEAD:
        assert bool(frequencies(model, torch.float32).isfinite().all())
    return len(expected_shapes(model)), model.parameters, model.longest


def _index(content: str, folder: Path) -> object:
    _written(folder / INDEX, content)
    found = locate(folder)
    try:
        return [shapes_in(folder / path) for path in found.values()]
    except RunError:  # there are no such files
        return refuse_names(folder, from_huggingface(LLAMA), found)


def _tokenizer(content: str, folder: Path) -> object:
    path = _written(folder / "tokenizer.json", content)
    return tokenizer(str(path)).encode_all(["some words", "a line\n", ""])


def _json_lines(content: str, folder: Path) -> object:
    path = _written(folder / "lines.jsonl", content)
    return list(JsonLines([path], RecordReader(), 0).documents())


def _records(content: str, folder: Path) -> object:
    """Lines of all kinds of records, made tokens of."""
    path = _written(folder / "records.jsonl", content)
    documents = list(JsonLines([path], RecordReader(template=CHAT), 0).documents())
    return encode_documents(Bytes(), documents, str)


def _chat_template(content: str, folder: Path) -> object:
    _written(folder / "tokenizer_config.json", content)
    found = find_template(str(folder), "", "2024-07-26")
    return found.fingerprint if found else None


def _dataset(content: str, folder: Path) -> object:
    _written(folder / "state.json", content)
    return dataset_files(folder)


def _settings(content: str, _: Path) -> object:
    settings = loads(content)
    assert loads(dump(settings)) == settings
    assert settings.run.threads <= MOST_THREADS
    small_enough = settings.batch.microbatches * settings.pipeline.slices <= 256
    return refuse_start(settings, layout_of(settings, 2)) if small_enough else None


def _override(content: str, _: Path) -> object:
    settings = loads(TOML, content.splitlines())
    assert settings.run.threads <= MOST_THREADS
    return settings


def _environment(content: str, _: Path) -> object:
    """Variables that somebody else has set; what is accepted fits into memory and into torch."""
    variables = dict(line.partition("=")[::2] for line in content.split("\n"))
    here = environment.read_place(variables)
    environment.refuse_environment(variables)
    assert here.rank < here.world <= MOST_RANKS
    assert here.port <= LAST_PORT
    names = filter(None, variables.get(INTERFACE, "").split(","))
    return [here, *map(socket.if_nametoindex, names)]


def _layers(content: str, folder: Path) -> object:
    return read_layers(str(_written(folder / "layers.txt", content)))


def _safetensors(content: str, folder: Path) -> object:
    """A file with this header, which says where in the file each tensor is."""
    header = content.encode("utf-8", "surrogatepass")
    path = folder / "some.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(48))
    return [tensor.sum() for _, tensor in tensors_in(path, list(shapes_in(path)))]


def _manifest(content: str, folder: Path) -> object:
    _written(folder / manifest.FILE, content)
    return manifest.damage(folder, manifest.read_manifest(folder, 20))


def _metrics(content: str, folder: Path) -> object:
    path = _written(folder / "metrics.jsonl", content)
    take_back(path, 1)
    return read_metrics(path)


def _chosen_plan(content: str, folder: Path) -> object:
    _written(folder / PLAN_FILE, content)
    plan = read_plan(folder)
    assert plan is not None
    plan_differences(plan.asked, CHOSEN_PLAN.asked)
    return plan.lines, plan.applied_to(loads("[plan]\nauto = true\n"))


def _cluster(content: str, _: Path) -> object:
    found = cluster_from(content, "own")
    assert found.gpu.memory > 0 < found.machine.group_rate(2)
    return found


def _row(content: str, _: Path) -> object:
    """A layout; one of many microbatches may take its time."""
    with suppress(ValueError, RecursionError):
        row = json.loads(content)
        if isinstance(row, dict) and layout_from(row).microbatches > 64:
            return None
    return [json.loads(line) for line in answer_lines([content])]


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


CHAT = ChatTemplate("chatml", CHATML, {}, date(2024, 7, 26))
_RECORDS = (
    {"messages": [*CHATS[0], {"role": "assistant", "content": "b", "weight": 0}]},
    {"prompt": "a", "completion": "b"},
    {"segments": [{"text": "a", "label": False}, {"text": "b", "label": True}]},
    {"input_ids": [1, 2, 3], "labels": [-100, 2, 3]},
    {"input_ids": [1, 2], "loss_mask": [0, 1]},
)
_TEMPLATES = [{"name": "default", "template": "{{ messages[0].content }}"}]
_STATE = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_indices_data_files": None}
_SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
_INDEX = {
    "metadata": {"total_size": 8},
    "weight_map": dict(zip(("model.norm.weight", "lm_head.weight"), _SHARDS)),
}
_HEADER = {
    "__metadata__": {"format": "pt"},
    "model.norm.weight": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
    "lm_head.weight": {"dtype": "BF16", "shape": [4, 4], "data_offsets": [16, 48]},
}
_FILES = {name: manifest.FileEntry(8, "0" * 64) for name in (*manifest.ALWAYS, "0_0.distcp")}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
_CONFIGS = (
    *(LLAMA, LLAMA_3_2_1B, {**MISTRAL, "sliding_window": 4096}),
    {**QWEN, "use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 0},
    {**QWEN, "rope_theta": 1000000.0, "rope_scaling": _YARN},
)

READERS = {
    "text lanes": Reader([FULL, FORMATS["text"].dumps(small())], _schedule),
    "json": Reader([FORMATS["json"].dumps(small())], _schedule),
    "csv": Reader(
        [OVERLAPPED, FORMATS["csv"].dumps(build("1f1b", devices=2, microbatches=3))], _schedule
    ),
    "toml": Reader([TOML, dump(loads(TOML))], _settings, share=0.5),
    "overrides": Reader(OVERRIDES, _override, share=0.5),
    "environment": Reader([ENVIRONMENT], _environment),
    "layers": Reader([LAYERS], _layers, share=0.5),
    "safetensors": Reader([json.dumps(_HEADER)], _safetensors),
    "manifest": Reader([manifest.spell(20, _FILES).decode()], _manifest),
    "metrics": Reader([STEPS], _metrics, share=0.1),
    "config.json": Reader([json.dumps(config) for config in _CONFIGS], _config_json),
    "index": Reader([json.dumps(_INDEX)], _index),
    "tokenizer.json": Reader([json.dumps(described())], _tokenizer),
    "json lines": Reader(['{"text": "a word", "number": 12}\n{"text": "\\u00e9"}\n'], _json_lines),
    "records": Reader(["\n".join(map(json.dumps, _RECORDS))], _records),
    "chat template": Reader(
        [json.dumps({"chat_template": _TEMPLATES, "bos_token": {"content": "<s>"}})], _chat_template
    ),
    "dataset": Reader([json.dumps(_STATE)], _dataset),
    "chosen plan": Reader([CHOSEN_PLAN.text()], _chosen_plan, share=0.2),
    "cluster": Reader([CLUSTER], _cluster),
    "layout": Reader([ROW], _row, share=0.2),
    "options": Reader(NUMBERS, _option),
    "command lines": Reader(LINES, _command_line, share=0.1),
}
