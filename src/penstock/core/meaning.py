"""The one table: what every kind of op reads and writes.

Pipeline systems write the rule "is this op ready?" again in their validator, their communication
pass, their simulator and their runtime, and the copies drift apart. Here it is written once, as
references relative to the op ("this stage's input", "the keys of the previous slice"). A dependency
is the writer of what is read; a transfer is a read whose writer stands on another device; a
lifetime runs from a write to the last read. Nobody else may encode any of these.

The table is read in two ways: `reads` and `writes` resolve it for one op, `rules` compiles it for a
shape into records that the vectorised graph (core/graph.py) applies to whole columns.
"""

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from penstock.core.buffers import BUFFERS, WHOLE_MODEL, Buf
from penstock.core.ops import SHARD_KINDS, STAGE_KINDS, Op
from penstock.core.shape import Shape


@dataclass(frozen=True, slots=True)
class Ref:
    """A buffer named from the point of view of an op."""

    buffer: str
    stage: int = 0
    """How many stages further along the model."""
    slice: int = 0
    """How many slices further along the sequence; outside the sequence there is no buffer."""
    where: str = "any"
    """Stages that have this reference: any, first, last, inner (not first), outer (not last),
    source or target of a skip edge, end of a tie."""
    given: str = ""
    """Letters of `Shape.embed` or `Shape.loss` under which it exists, as `embed=E`."""
    shards: str = "own"
    """For buffers of vocabulary shards: own, or all of them (one collective)."""
    generation: str = "newest"
    """newest: the loaded copy where there is one. first: the one the forward wrote."""


_FORWARD_READS = (
    Ref("x", where="inner"),
    Ref("partial", where="first", given="embed=E", shards="all"),
    Ref("kv", slice=-1),
    Ref("skip", where="target"),
    Ref("weight"),
)
_FORWARD_WRITES = (
    Ref("x", stage=+1, where="outer"),
    Ref("out", where="last", given="loss=ST"),
    Ref("g", where="last", given="loss=F"),
    Ref("kv"),
    Ref("skip", where="source"),
)
_GRADIENT_READS = (
    Ref("act"),
    Ref("g", where="outer"),
    Ref("g", where="last", given="loss=F"),
    Ref("gpart", where="last", given="loss=ST", shards="all"),
    Ref("dkv", slice=+1),
    Ref("kv"),
    Ref("dskip", where="source"),
    Ref("weight"),
)
_GRADIENT_WRITES = (
    Ref("g", stage=-1, where="inner"),
    Ref("gin", where="first", given="embed=E"),
    Ref("dkv"),
    Ref("dskip", where="target"),
)


class Meaning(NamedTuple):
    """What one kind of op reads and what it writes."""

    reads: tuple[Ref, ...]
    writes: tuple[Ref, ...]


MEANING: dict[str, Meaning] = {
    "F": Meaning(_FORWARD_READS, (*_FORWARD_WRITES, Ref("act"), Ref("keep"))),
    "N": Meaning(_FORWARD_READS, (*_FORWARD_WRITES, Ref("ckpt"), Ref("work"))),
    "R": Meaning((Ref("ckpt"), Ref("kv"), Ref("weight")), (Ref("act"), Ref("keep"))),
    "B": Meaning((*_GRADIENT_READS, Ref("keep")), (*_GRADIENT_WRITES, Ref("dw"))),
    "I": Meaning(_GRADIENT_READS, (*_GRADIENT_WRITES, Ref("stash"), Ref("dw"))),
    "W": Meaning((Ref("stash"), Ref("keep")), (Ref("dw"),)),
    "E": Meaning((Ref("weight"),), (Ref("partial"),)),
    "D": Meaning((Ref("gin"),), (Ref("dw"),)),
    "S": Meaning(
        (Ref("out"), Ref("weight")), (Ref("stat"), Ref("logits"), Ref("gpart", given="loss=S"))
    ),
    "T": Meaning(
        (Ref("stat", shards="all"), Ref("logits"), Ref("weight", given="loss=T")),
        (Ref("gpart", given="loss=T"), Ref("dw")),
    ),
    "O": Meaning((Ref("act", generation="first"), Ref("keep", generation="first")), (Ref("host"),)),
    "L": Meaning((Ref("host"),), (Ref("back"),)),
    "G": Meaning((), (Ref("weight"),)),
    "Z": Meaning((Ref("dw", generation="first"),), (Ref("dshard"), Ref("tied", where="end"))),
    "U": Meaning((Ref("dw"), Ref("norm")), ()),
    "V": Meaning((Ref("dw"), Ref("tied", where="end")), (Ref("norm"), Ref("own"))),
    "A": Meaning((Ref("dw"), Ref("own")), ()),
    "C": Meaning((Ref("former"),), ()),
}

LENDER = Meaning((Ref("returned"),), (Ref("lent"),))
"""What a loan adds to the op that lends: it sends work away as it runs and ends with the result."""

HELPER = Meaning((Ref("lent"),), (Ref("returned"),))
"""What a loan adds to the op that helps. The two run in lock-step, so neither waits for the end of
the other."""


@cache
def kinds_writing(buffer: str) -> frozenset[str]:
    """Kinds of ops that write a buffer."""
    return frozenset(k for k, e in MEANING.items() if any(r.buffer == buffer for r in e.writes))


@cache
def kinds_reading(buffer: str) -> frozenset[str]:
    """Kinds of ops that read a buffer."""
    return frozenset(k for k, e in MEANING.items() if any(r.buffer == buffer for r in e.reads))


ATTENDING = kinds_reading("kv") | kinds_writing("kv")
"""Kinds of ops that have attention: those that have to do with keys and values."""


class Rule(NamedTuple):
    """A reference compiled for one shape: which ops have it, and which instance it names."""

    buffer: str
    first: int
    """First stage that has the reference."""
    end: int
    """One past the last stage that has it."""
    offset: int
    """Added to the op's stage to get the instance's number, where `fixed` is negative."""
    fixed: int
    """The instance's number, where it does not depend on the op's stage."""
    slice: int
    shards: str
    newer: str


Rules = dict[str, tuple[tuple[Rule, ...], tuple[Rule, ...]]]
"""The reads and the writes of each kind."""


@lru_cache(maxsize=512)
def rules(shape: Shape) -> Rules:
    """The table for one shape: reads and writes of each kind, without what the shape rules out."""
    return _rules(stages_alone(shape))


@lru_cache(maxsize=512)
def stages_alone(shape: Shape) -> Shape:
    """The stages of a shape and their edges, for one unit in which nothing weighs: all that says
    who has which reference."""
    skips, ties = shape.skips, shape.ties
    return Shape(
        shape.devices,
        shape.stages,
        (1,),
        skips=skips,
        ties=ties,
        embed=shape.embed,
        loss=shape.loss,
    )


@lru_cache(maxsize=512)
def _rules(shape: Shape) -> Rules:
    """The same for all shapes that differ in their batch, and in how much its parts weigh."""
    return {
        kind: (_compile(shape, kind, entry.reads), _compile(shape, kind, entry.writes))
        for kind, entry in MEANING.items()
    }


def _compile(shape: Shape, kind: str, refs: tuple[Ref, ...]) -> tuple[Rule, ...]:
    return tuple(rule for ref in refs if _holds(shape, ref) for rule in _expand(shape, kind, ref))


def _holds(shape: Shape, ref: Ref) -> bool:
    if not ref.given:
        return True
    field, _, letters = ref.given.partition("=")
    return getattr(shape, field) in letters


def _expand(shape: Shape, kind: str, ref: Ref) -> list[Rule]:
    newer = BUFFERS[ref.buffer].newer if ref.generation == "newest" else ""
    tail = (ref.slice, ref.shards, newer)
    if ref.where in ("source", "target", "end"):
        return [
            Rule(ref.buffer, stage, stage + 1, 0, number, *tail)
            for number, stage in _ends(shape, ref.where)
        ]
    first, end = _with_reference(shape, kind, ref)
    fixed = 0 if ref.buffer in WHOLE_MODEL else -1
    of_shard = kind in SHARD_KINDS and BUFFERS[ref.buffer].per == "home"
    return [Rule(ref.buffer, first, end, ref.stage + shape.stages * of_shard, fixed, *tail)]


def _with_reference(shape: Shape, kind: str, ref: Ref) -> tuple[int, int]:
    """Stages, shards, or both behind each other, that have a reference."""
    if kind in SHARD_KINDS:
        return 0, shape.devices
    return (0, shape.homes) if kind in STAGE_KINDS else _range(shape, ref.where)


def _ends(shape: Shape, where: str) -> list[tuple[int, int]]:
    """Number and stage of every end of a skip edge, or of a tie."""
    if where == "end":
        return [(number, stage) for number, tie in enumerate(shape.ties) for stage in tie]
    side = ("source", "target").index(where)
    return [(number, edge[side]) for number, edge in enumerate(shape.skips)]


def _range(shape: Shape, where: str) -> tuple[int, int]:
    last = shape.stages - 1
    return {
        "any": (0, shape.stages),
        "first": (0, 1),
        "inner": (1, shape.stages),
        "outer": (0, last),
        "last": (last, shape.stages),
    }[where]


def reads(op: Op, shape: Shape, written: frozenset[Buf] = frozenset()) -> list[Buf]:
    """Every buffer instance that `op` reads: its newest generation among those `written`."""
    found: list[Buf] = []
    for rule, buf in _resolve(op, shape, 0):
        newer = buf._replace(name=rule.newer)
        found.append(newer if rule.newer and newer in written else buf)
    return found


def writes(op: Op, shape: Shape) -> list[Buf]:
    """Every buffer instance that `op` writes."""
    return [buf for _, buf in _resolve(op, shape, 1)]


def _resolve(op: Op, shape: Shape, side: int) -> list[tuple[Rule, Buf]]:
    found: list[tuple[Rule, Buf]] = []
    for rule in rules(shape)[op.kind][side]:
        slice = op.slice + rule.slice
        if BUFFERS[rule.buffer].per != "home" and not 0 <= slice < shape.slices[op.mb]:
            continue
        if rule.first <= op.stage < rule.end:
            numbers = _numbers(op, shape, rule)
            found += [(rule, Buf(rule.buffer, number, op.mb, slice)) for number in numbers]
    return found


def _numbers(op: Op, shape: Shape, rule: Rule) -> range:
    if rule.shards == "all":
        return range(shape.devices)
    number = op.stage + rule.offset if rule.fixed < 0 else rule.fixed
    return range(number, number + 1)
