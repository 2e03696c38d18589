"""Kills the ranks of a run one after the other, and says whether that has changed the outcome.

    PYTHONPATH=tests python -m train.runs.kills 100

Four ranks train under the agent of torchrun, which starts them all again when one is gone. In each
attempt one of them is killed (SIGKILL) at an op that chance has chosen, each rank as often as the
others. Torch is imported once, in a server that every rank is a fork of.
"""

import os
import random
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from torch import Tensor
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from penstock.arch.parameters import expected_shapes
from penstock.model.io.huggingface import read_weights
from penstock.run.process.environment import read_place
from penstock.train.config.load import load
from penstock.train.loop.setup import architecture
from train.runs.mistakes import LAST_WORD, die_at
from train.runs.ranks import Setting, be_rank

RANKS = 4
OPS = 16
"""Ops of a rank in a step: 4 microbatches x 2 slices, forward and backward."""
STEPS = 4
"""Steps within which an attempt ends: enough for some of them to be saved, most of the time."""

Weights = dict[str, Tensor]


class Kill(NamedTuple):
    """Which rank is killed in an attempt, and after how many of its ops."""

    rank: int
    op: int


def kills(count: int, seed: int) -> list[Kill]:
    """One for each attempt, the same for the same seed."""
    chance = random.Random(seed)
    ranks = [number % RANKS for number in range(count)]
    chance.shuffle(ranks)
    return [Kill(rank, chance.randrange(STEPS * OPS)) for rank in ranks]


class Disturbed(NamedTuple):
    """A run with kills, and the same run without."""

    killed: int
    """Kills that have happened."""
    begun: list[int]
    """The step that each attempt went on from."""
    with_kills: Weights
    without: Weights

    @property
    def different(self) -> list[str]:
        """Weights that are not the same, bit for bit."""
        return [
            name for name, tensor in self.without.items() if not tensor.equal(self.with_kills[name])
        ]


def disturbed(setting: Setting, plan: list[Kill]) -> Disturbed:
    """Train with the kills and without; long enough for each of them to happen."""
    long = (f"run.steps={STEPS * len(plan) + 1}", "pipeline.devices=4", "checkpoint.every=1")
    exports = [setting.folder / f"export-{name}" for name in ("calm", "killed")]
    calm, killed = ((*long, f"checkpoint.export={export}") for export in exports)
    ran = setting.run(*calm, name="calm", ranks=RANKS)
    assert set(ran.codes) == {0}, ran.said
    said = setting.folder / "killed"
    said.mkdir()
    elastic_launch(_agent(len(plan)), member)(setting.words(*killed, name=said.name), said, plan)
    without, with_kills = (weights(setting, export) for export in exports)
    killed = sum(_killed(said, attempt, kill.rank) for attempt, kill in enumerate(plan))
    begun = [_begun(said, attempt) for attempt in range(len(plan) + 1)]
    return Disturbed(killed, begun, with_kills, without)


def _killed(said: Path, attempt: int, rank: int) -> bool:
    """Whether a rank was killed as planned: it says so, and nothing after that."""
    return (said / f"attempt-{attempt}-rank-{rank}.txt").read_text().endswith(f"{LAST_WORD}\n")


def _begun(said: Path, attempt: int) -> int:
    """The step that an attempt went on from, as its first rank has said."""
    words = (said / f"attempt-{attempt}-rank-0.txt").read_text()
    found = re.search(r"continues from step (\d+)", words)
    return int(found[1]) if found else 0


def _agent(restarts: int) -> LaunchConfig:
    """What `torchrun --standalone --nproc-per-node 4 --max-restarts N` makes of its options."""
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=RANKS,
        run_id=f"kills-{os.getpid()}",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=restarts,
        monitor_interval=0.1,
        start_method="forkserver",
    )


def member(words: list[str], folder: Path, plan: list[Kill]) -> None:
    """What the agent starts: a rank that is killed when it is its turn."""
    here = read_place()
    file = folder / f"attempt-{here.attempt}-rank-{here.rank}.txt"
    be_rank(dict(os.environ), words, file, lambda: _prepare(plan))


def _prepare(plan: list[Kill]) -> None:
    here = read_place()
    if here.attempt < len(plan) and plan[here.attempt].rank == here.rank:
        die_at(plan[here.attempt].op)


def weights(setting: Setting, export: Path) -> Weights:
    """Exported weights by name."""
    return dict(read_weights(export, expected_shapes(architecture(load(setting.config)))))


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
        found = disturbed(Setting(Path(folder)), kills(count, seed))
    print(f"{found.killed} kills; attempts went on from steps {found.begun}")
    sys.exit(f"different: {', '.join(found.different)}" if found.different else 0)
