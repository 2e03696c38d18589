"""What the explorer knows about training: which work exists, and what it waits for.

Written from the papers, apart from the product and on purpose in another form: there, buffers are
read and written; here, work puts tokens on a table and needs tokens to lie there. Nothing in this
folder's `world`, `explorer` and `channels` imports the package it judges.

A piece of work is a plain tuple (kind, stage, microbatch, slice). For E D S T the second number is
a vocabulary shard.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

Work = tuple[str, int, int, int]
Place = tuple[int, str]
"""Device and stream: where a lane is."""
Token = tuple[str, int, int, int]

FORWARD, BACKWARD, COPY, SHARD = "FN", "BI", "OL", "EDST"
KINDS = "FNRBIWEDSTOL"
"""What can be explored; weight gathers, reductions and updates are not part of it."""


@dataclass(frozen=True)
class World:
    """The numbers that decide which work exists."""

    devices: int
    stages: int
    slices: tuple[int, ...]
    weightless: frozenset[int] = frozenset()
    skips: tuple[tuple[int, int], ...] = ()
    copies: int = 1
    embed: str = "F"
    loss: str = "F"

    def units(self) -> Iterator[tuple[int, int]]:
        """Every slice of every microbatch."""
        return ((mb, slice) for mb, count in enumerate(self.slices) for slice in range(count))

    def recipes(self, stage: int) -> frozenset[frozenset[str]]:
        """Every legal set of kinds that one stage may run for one slice."""
        return _recipes("I" if stage in self.weightless else "IW")

    def shard_kinds(self) -> frozenset[str]:
        """Kinds that every vocabulary shard must run for every slice."""
        return frozenset(("ED" if self.embed == "E" else "") + ("ST" if self.loss != "F" else ""))

    def all_shards(self, token: str, mb: int, slice: int) -> list[Token]:
        return [(token, shard, mb, slice) for shard in range(self.devices)]


@cache
def _recipes(halves: str) -> frozenset[frozenset[str]]:
    """The forward keeps its activations, or is recomputed; the backward is whole, or in two
    halves, of which a stage without weights has only the first; activations may visit the host.
    """
    parts = product(("F", "NR"), ("B", halves), ("", "OL"))
    return frozenset(frozenset("".join(part)) for part in parts)


def given_by(work: Work) -> list[Token]:
    """What lies on the table once `work` is done."""
    kind, stage, mb, slice = work
    names = {
        "F": ("output", "context", "activation"),
        "N": ("output", "context", "input kept"),
        "R": ("activation",),
        "B": ("input gradient", "context gradient"),
        "I": ("input gradient", "context gradient", "half a backward"),
        "E": ("embedding",),
        "S": ("statistics",),
        "T": ("hidden gradient",),
        "O": ("host copy",),
        "L": ("activation again",),
    }
    return [(name, stage, mb, slice) for name in names.get(kind, ())]


def wanted_by(world: World, work: Work, *, returns: bool) -> list[Token]:
    """What must lie on the table before `work`; `returns`: its activation comes from the host."""
    kind, stage, mb, slice = work
    own = (stage, mb, slice)
    if kind in FORWARD:
        return _wanted_by_forward(world, stage, mb, slice)
    if kind in BACKWARD:
        held: Token = ("activation again" if returns else "activation", *own)
        return [held, *_gradients_wanted(world, stage, mb, slice)]
    simple: dict[str, list[Token]] = {
        "R": [("input kept", *own)],
        "W": [("half a backward", *own)],
        "O": [("activation", *own)],
        "L": [("host copy", *own)],
        "E": [],
        "D": [("input gradient", 0, mb, slice)],
        "S": [("output", world.stages - 1, mb, slice)],
        "T": world.all_shards("statistics", mb, slice),
    }
    return simple[kind]


def _wanted_by_forward(world: World, stage: int, mb: int, slice: int) -> list[Token]:
    """The stage before, everything that skips to here, and the attention context so far."""
    sources = [stage - 1] if stage else []
    sources += [source for source, target in world.skips if target == stage]
    wanted: list[Token] = [("output", source, mb, slice) for source in sources]
    if stage == 0 and world.embed == "E":
        wanted += world.all_shards("embedding", mb, slice)
    if slice:
        wanted.append(("context", stage, mb, slice - 1))
    return wanted


def _gradients_wanted(world: World, stage: int, mb: int, slice: int) -> list[Token]:
    """What comes down from the loss, along skips, and from the slices that attended to this one."""
    targets = [target for source, target in world.skips if source == stage]
    wanted: list[Token] = []
    if stage < world.stages - 1:
        targets.append(stage + 1)
    elif world.loss == "F":
        wanted.append(("output", stage, mb, slice))
    else:
        writer = {"S": "statistics", "T": "hidden gradient"}[world.loss]
        wanted += world.all_shards(writer, mb, slice)
    wanted += [("input gradient", target, mb, slice) for target in targets]
    if slice < world.slices[mb] - 1:
        wanted.append(("context gradient", stage, mb, slice + 1))
    return wanted
