"""What ops read and write, and how long an instance of it lives.

A buffer is a kind of value ("the input of a stage"); an instance of it belongs to a stage, a shard,
a microbatch or a loan. Which op reads and writes which is said in core/meaning.py, for all kinds.
"""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Buffer:
    """Something ops read and write; `per` is what one instance of it belongs to."""

    text: str
    per: str = "unit"
    """unit: (stage or shard, microbatch, slice). microbatch: the same, but its slices share one
    allocation. home: (stage, device), written many times. loan: one loan of attention work."""
    turn: str = "once"
    """Which write a read of a home buffer waits for: the first reader for the first write, or the
    last reader for the last one (`after` orders the turns between)."""
    size: str = ""
    """Name of its size in the cost model; buffers without one are not counted."""
    born: str = "start"
    """Whether the memory is taken at the start of the writer or at its end."""
    newer: str = ""
    """The buffer that replaces this one once it is written: its next generation."""
    crosses: str = ""
    """The boundary whose bytes a transfer of it has: the one in front of its reader's or of its
    writer's stage, the first, the last, or none that counts. Without one it never travels: it is
    read on the device that wrote it."""
    collective: bool = False
    """Whether every writer has a part of it and a read is of all parts together: then one
    collective brings them, not a message from each writer."""
    rule: str = "read-before-write"
    """The rule that a reader in front of its writer breaks."""


BUFFERS: dict[str, Buffer] = {
    "x": Buffer("the input", crosses="reader"),
    "out": Buffer("the model's output", size="given", born="end", crosses="last"),
    "partial": Buffer(
        "a shard's part of the embedding", size="given", crosses="first", collective=True
    ),
    "skip": Buffer("the skip connection", crosses="reader"),
    "act": Buffer("the saved activation", size="act", newer="back"),
    "keep": Buffer("what the weight gradient needs of the activation", newer="back"),
    "ckpt": Buffer("the kept input", size="ckpt"),
    "work": Buffer("the activation that exists only while the op runs", size="act"),
    "kv": Buffer("the keys and values", per="microbatch", size="kv", rule="slice-order"),
    "dkv": Buffer("the key/value gradient", per="microbatch", size="dkv", rule="slice-order"),
    "g": Buffer("the output gradient", crosses="writer"),
    "gin": Buffer("the gradient of the model's input", size="given", born="end", crosses="first"),
    "dskip": Buffer("the gradient of the skip connection", crosses="writer"),
    "stash": Buffer("what is kept for the weight gradient", size="stash", born="end"),
    "host": Buffer("the copy on the host"),
    "back": Buffer("the activation loaded back", size="act"),
    "stat": Buffer("a shard's softmax statistics", crosses="none", collective=True),
    "logits": Buffer("a shard's saved logits", size="logits"),
    "gpart": Buffer(
        "a shard's part of the output gradient", size="given", crosses="last", collective=True
    ),
    "lent": Buffer("the queries, keys and values", per="loan", crosses="loan"),
    "returned": Buffer("the result of lent attention", per="loan", crosses="loan"),
    "weight": Buffer("the gathered weight", per="home", turn="first"),
    "dw": Buffer("the weight gradient", per="home", turn="last", newer="dshard"),
    "dshard": Buffer("the reduced gradient", per="home", turn="last"),
    "tied": Buffer(
        "the gradient of a shared weight", per="home", turn="last", crosses="none", collective=True
    ),
    "norm": Buffer(
        "the norm of the whole gradient", per="home", turn="last", crosses="none", collective=True
    ),
    "own": Buffer("the norm of a stage's gradient", per="home", turn="last"),
    "former": Buffer("the norm of the step before", per="home"),
}

SHARDED = frozenset({"partial", "stat", "logits", "gpart"})
"""Buffers numbered by vocabulary shard."""

COLLECTIVE = tuple(name for name, buffer in BUFFERS.items() if buffer.collective)
"""Buffers that a collective brings."""

WHOLE_MODEL = frozenset({"out", "gin", "norm", "former"})
"""Buffers that exist once along the model: at its end, at its beginning, of all of it."""

ALL = -1
"""In place of a shard's number: what a collective makes of the parts of all shards."""


class Buf(NamedTuple):
    """One buffer instance. `number` is its stage, shard (or ALL), skip edge, tie or loan."""

    name: str
    number: int
    mb: int
    slice: int

    def __str__(self) -> str:
        return f"{BUFFERS[self.name].text} of {_numbered(self)}, microbatch {self.mb}" + (
            f", slice {self.slice}" if self.slice else ""
        )


def _numbered(buf: Buf) -> str:
    if buf.name in WHOLE_MODEL:
        return "the model"
    if buf.name in SHARDED:
        return "all shards" if buf.number == ALL else f"shard {buf.number}"
    if buf.name in ("skip", "dskip"):
        return f"skip edge {buf.number}"
    per_loan = BUFFERS[buf.name].per == "loan"
    what = "loan" if per_loan else "tie" if buf.name == "tied" else "stage"
    return f"{what} {buf.number}"
