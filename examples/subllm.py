"""A model that leaves out tokens beside the plain one, and what it says: examples/subllm.py

Trains examples/subllm.toml and the same without its brackets: two to three minutes on two free
cores. Prints loss by tokens and by seconds of both and draws it (runs/subllm-example/loss.svg), the
FLOPs of a step, and a text that the model goes on with, token by token. A number behind it is the
number of steps. Each call trains both from the beginning: what an earlier one
left in runs/subllm-example goes.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tomllib
from itertools import accumulate
from pathlib import Path
from time import process_time
from typing import NamedTuple

import torch

from penstock.data.batch import Microbatch
from penstock.draw.curves import Panel, svg_curves
from penstock.model.io.huggingface import read_config
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.observe.utilisation import model_flops
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import engine_on
from penstock.run.step.load_generation import ONE_STAGE, load_generation
from penstock.run.step.optimizer import NoUpdate
from penstock.run.step.state import begin
from penstock.train.config.load import load
from penstock.train.loop.setup import architecture

RawText = argparse.RawDescriptionHelpFormatter
CONFIG = Path(__file__).with_name("subllm.toml")
OUT = Path("runs/subllm-example")
PROMPT = Path(subprocess.__file__).read_bytes()[20_000:21_000]


def train(name: str, text: str, steps: int) -> Path:
    """A run of a configuration, in a folder of its own."""
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)  # a run of as many steps would go on, or be done
    folder.mkdir(parents=True)
    config = folder / "config.toml"
    config.write_text(text)
    changes = [f"run.steps={steps}", f"run.directory={folder / 'run'}"]
    changes += [f"checkpoint.export={folder / 'export'}"]
    warmup = tomllib.loads(text)["optimizer"]["warmup_steps"]
    changes += [f"optimizer.warmup_steps={min(warmup, steps // 2)}"]
    options = [part for change in changes for part in ("--set", change)]
    print(f"training {name}, see {folder}/log", file=sys.stderr)
    with (folder / "log").open("w") as log:
        command = [sys.executable, "-m", "penstock", "train", str(config), *options]
        code = subprocess.run(command, stdout=log, stderr=log).returncode
    if code:
        sys.exit((folder / "log").read_text())
    return folder


def records(folder: Path, file: str) -> list[dict[str, float]]:
    lines = (folder / "run" / file).read_text().splitlines()
    return [json.loads(line) for line in lines]


class Done(NamedTuple):
    """What a run has reached after a step."""

    tokens: float
    seconds: float
    loss: float


def losses_of(folder: Path) -> list[Done]:
    """Of every step; seconds are those of all steps up to it."""
    metrics, times = records(folder, "metrics.jsonl"), records(folder, "timing.jsonl")
    seconds = accumulate(each["seconds"] for each in times)
    return [Done(each["tokens"], then, each["loss"]) for each, then in zip(metrics, seconds)]


def means(steps: list[Done], every: int) -> list[Done]:
    """Some of the steps, each with the mean loss of those before it that are left out."""
    ends = range(every, len(steps) + 1, every)
    groups = [steps[end - every : end] for end in ends]
    return [group[-1]._replace(loss=sum(each.loss for each in group) / every) for group in groups]


def print_table(runs: dict[str, list[Done]], every: int) -> None:
    print(f"{'tokens':>8}  {'loss':^17}  {'seconds':^17}")
    print(f"{'':>8}  {'subllm':>8} {'plain':>8}  {'subllm':>8} {'plain':>8}")
    for ours, plain in zip(*(means(steps, every) for steps in runs.values())):
        losses = f"{ours.loss:8.3f} {plain.loss:8.3f}"
        print(f"{ours.tokens:>8}  {losses}  {ours.seconds:8.3f} {plain.seconds:8.3f}")


def panels(runs: dict[str, list[Done]], every: int) -> list[Panel]:
    """The losses against tokens and against time."""
    shown = {name: means(steps, every) for name, steps in runs.items()}
    tokens = {name: [(each.tokens, each.loss) for each in run] for name, run in shown.items()}
    seconds = {name: [(each.seconds, each.loss) for each in run] for name, run in shown.items()}
    return [Panel("tokens", tokens), Panel("seconds of training", seconds)]


def asked_steps(usual: int) -> int:
    """The number behind the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=RawText)
    parser.add_argument("steps", nargs="?", type=int, default=usual, help=f"usually {usual}")
    steps: int = parser.parse_args().steps
    if steps < 2:
        parser.error(f"{steps} steps are not enough: give 2 or more")
    return steps


def main() -> None:
    text = CONFIG.read_text()
    steps = asked_steps(tomllib.loads(text)["run"]["steps"])
    head, _, rest = text.partition("[model.subsampling]")
    texts = {"subllm": text, "plain": head + rest[rest.index("[data]") :]}
    folders = {name: train(name, each, steps) for name, each in texts.items()}
    runs = {name: losses_of(folder) for name, folder in folders.items()}
    print_table(runs, max(steps // 6, 1))
    picture = OUT / "loss.svg"
    picture.write_text(svg_curves(panels(runs, max(steps // 50, 1)), "loss of both models"))
    print(f"wrote {picture}")
    models = [architecture(load(folder / "config.toml", ())) for folder in folders.values()]
    lengths = [load(folders["subllm"] / "config.toml", ()).batch.length]
    flops = [model_flops(model, lengths) for model in models]
    print(f"FLOPs of a sequence: {flops[0]:,} of {flops[1]:,}, {flops[0] / flops[1]:.3f}")
    seconds = [cpu_seconds(folder / "export", lengths[0]) for folder in folders.values()]
    print(
        f"CPU seconds of one: {seconds[0]:.3f} of {seconds[1]:.3f}, {seconds[0] / seconds[1]:.3f}"
    )
    say(folders["subllm"] / "export")


def cpu_seconds(folder: Path, length: int) -> float:
    """Of a forward and a backward of one sequence by one thread; other processes do not count."""
    torch.set_num_threads(1)
    layout = Layout.of(read_config(folder), ONE_STAGE, length)
    plan = StepPlan(layout, ONE_STAGE, ((length,),))
    engine = engine_on(Mesh(Grid()), plan, NoUpdate(), torch.device("cpu"))
    begin(engine, seed=0)
    words = torch.randint(256, (1, length))
    found = []
    for _ in range(8):
        start = process_time()
        engine.gradients([Microbatch(words, words, ((0,),))])
        found.append(process_time() - start)
    return min(found)


def say(folder: Path) -> None:
    """What the model goes on with, and that it is what one forward of all of it says."""
    prompt, longest = list(PROMPT), len(PROMPT) + 60
    generation = load_generation(folder, longest)
    found = generation.continued(prompt, 60)
    print(repr(PROMPT[-40:].decode()), "->", repr(bytes(found).decode(errors="replace")))
    tokens, model = len(prompt) + len(found) - 1, read_config(folder)
    assert model.subsampling is not None  # the plain model says nothing
    for number, kept in generation.kept().items():
        share = f"{kept / tokens:.2f}; training keeps {model.subsampling.keep:.2f}"
        print(f"pair {number}: {kept} of {tokens} tokens are kept, {share}")
    whole = load_generation(folder, longest).feed(prompt + found[:-1])
    assert torch.equal(whole[len(prompt) - 1 :].argmax(-1), torch.tensor(found))


if __name__ == "__main__":
    main()
