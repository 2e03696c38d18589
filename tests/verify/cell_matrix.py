"""Runs in which every two circumstances of a cell meet."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

from covering import Row, covering
from penstock.arch.cell_shape import CellShape, Norms
from penstock.arch.mesh_shape import MeshShape, refuse_misfits
from penstock.core.schedule import Schedule
from penstock.errors import PenstockError, ShapeError
from penstock.schedules import find
from penstock.transform import cut_slices, recompute_all
from penstock.verify.cases import CaseSizes
from penstock.verify.changes import equal_layers, even_lengths, ragged_lengths
from penstock.verify.scale import CPU
from penstock.verify.variants import Batch, Trial, TrialWork

AXES = {
    "schedule": (
        "gpipe",
        "1f1b",
        "interleaved",
        "breadth-first",
        "zb-h1",
        "zb-v",
        "stp",
        "dualpipev",
        "seq1f1b",
        "slimpipe",
        "seq1f1b-zb",
        "helixpipe",
    ),
    "slices": (1, 2, 3),
    "tensor": (1, 2, 3),
    "sequence": ((1, 1), (2, 1), (1, 2), (1, 3), (2, 2)),
    "norms": ("scattered", "replicated"),
    "shard": ("none", "optimizer", "full"),
    "recompute": (False, True),
    "tied": (False, True),
    "packed": (False, True),
    "length": (24, 23),
}
"""`sequence` is how many ranks exchange heads, and how many pass keys and values round. Three
tensor ranks share four heads. With `tied` come biases and norms of heads, with `packed` two rows,
and sequences of 23 tokens are cut into slices of unequal lengths."""

PROCESSES = (4, 6, 8)
"""Processes of a run: each number of them is started once."""


def cell_of(row: Row) -> CellShape:
    return _cell(row["tensor"], row["sequence"], row["norms"])


@cache
def _cell(tensor: int, sequence: tuple[int, int], norms: Norms) -> CellShape:
    ulysses, ring = sequence
    return CellShape(tensor, ulysses, ring, norms)


@cache
def schedule_of(name: str, devices: int, slices: int, recompute: bool) -> Schedule:
    """The smallest one of its kind; one of whole sequences is cut into slices."""
    spec = find(name)
    case = next(CaseSizes((devices,), (2, 4, 6, 8), (slices,)).accepted(spec), None)
    if case is None:
        raise ShapeError(f"{name} does not run on {devices} device(s)", hint="take more")
    found = spec.build(case)
    if slices > 1 and not spec.sliced:
        found = cut_slices(found, slices)
    return (recompute_all(found) if recompute else found).renamed(name)


@cache
def heads_suffice(tensor: int, sequence: tuple[int, int]) -> bool:
    """Whether the product takes that many ranks for the heads of the model."""
    ulysses, ring = sequence
    try:
        refuse_misfits(CPU.model, MeshShape(sequence=ulysses * ring, ring=ring, tensor=tensor))
    except ShapeError:
        return False
    return True


@cache
def spreads(
    name: str, slices: int, recompute: bool, cell: CellShape, shard: str
) -> tuple[tuple[int, int], ...]:
    """Devices and replicas with which a schedule and cells make up a run; what is shared is held by
    several ranks, of one cell or of two replicas."""
    alone = shard == "none" or cell.sequence > 1
    replicas = (1, 2) if alone else (2,)
    return tuple(
        (devices, copies)
        for copies, devices in product(replicas, (2, 1, 4))
        if copies * devices * cell.ranks in PROCESSES and _runs(name, devices, slices, recompute)
    )


def _runs(*of: object) -> bool:
    try:
        schedule_of(*of)
    except PenstockError:
        return False
    return True


def allowed(row: Row) -> bool:
    return heads_suffice(row["tensor"], row["sequence"]) and bool(_spreads(row))


def _spreads(row: Row) -> tuple[tuple[int, int], ...]:
    at = (row["schedule"], row["slices"], row["recompute"])
    return spreads(*at, cell_of(row), row["shard"])


def refused() -> Iterator[tuple[int, tuple[int, int]]]:
    """Tensor and sequence ranks that the product refuses: more than there are heads."""
    for pair in product(AXES["tensor"], AXES["sequence"]):
        if not heads_suffice(*pair):
            yield pair


@cache
def design() -> list[Row]:
    return covering(AXES, allowed)


def trial_of(row: Row) -> Trial:
    """The run of a row."""
    devices, replicas = _spreads(row)[0]
    schedule = schedule_of(row["schedule"], devices, row["slices"], row["recompute"])
    shape, length = schedule.shape, row["length"]
    layers = len(shape.weightless) or max(2, shape.stages)
    model = replace(CPU.model, layers=layers, tied=row["tied"])
    model = replace(model, qkv_bias=row["tied"], qk_norm=row["tied"])
    documents = CPU.documents if row["packed"] else ((0,),)
    batch = Batch(replicas * shape.microbatches, 1 + row["packed"], length, (1, 4), documents)
    cut = ragged_lengths if length % 2 else even_lengths
    return Trial(
        cell_of(row).text or "one rank",
        schedule,
        TrialWork(model, batch),
        () if shape.weightless else equal_layers(layers, shape.stages),
        tuple(cut(length, count, mb) for mb, count in enumerate(shape.slices)),
        replicas,
        "float64",
        cell=cell_of(row),
        shard=row["shard"],
    )
