"""What a schedule file says, whatever its syntax: one tree of plain values.

Text lanes and JSON are two spellings of the same tree, so what a file may hold is written once,
here. A share is a text such as "1/4" and an op is its text form; what has its default is left out,
and slice shares that are the same in all microbatches are listed once.

    name, shape {devices, stages, slices, ...}, pairs, loans, gangs, after, shares,
    lanes [{device, stream, ops}, ...]
"""

from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from fractions import Fraction
from typing import Any

from penstock.core.ops import STREAMS, Op
from penstock.core.schedule import After, Loan, Schedule
from penstock.core.shape import MAX_OPS, Shape
from penstock.core.table import PlainLane
from penstock.errors import ShapeError, nearest
from penstock.files._bounds import missing_ops
from penstock.files._node import Node, is_name

NEEDED = ("devices", "stages", "slices")
"""Keys of a shape that have no default."""

BYTES_BELOW = 10**18


def _many(read: Callable[[Node], Any]) -> Callable[[Node], tuple[Any, ...]]:
    return lambda node: tuple(read(item) for item in node.items())


def _record(make: Callable[..., Any], *read: Callable[[Node], Any]) -> Callable[[Node], Any]:
    """A list of fixed length, each place read in its own way."""
    return lambda node: make(*(of(item) for of, item in zip(read, node.items(len(read)))))


def _pair(node: Node) -> tuple[Op, ...]:
    ops = node.ops()
    if len(ops) < 2:
        raise node.fail(f"a pair has {len(ops)} op instead of two", "name two ops that run braided")
    return tuple(ops)


SHAPE_FIELDS: dict[str, Callable[[Node], Any]] = {
    "stages": lambda node: node.whole(1),
    "devices": lambda node: node.whole(1),
    "slices": lambda node: tuple(node.wholes(1)),
    "stage_share": _many(Node.fraction),
    "kind_share": _many(_record(lambda *share: share, Node.word, _many(Node.fraction))),
    "slice_share": _many(_many(Node.fraction)),
    "boundary_bytes": _many(lambda node: node.whole(below=BYTES_BELOW)),
    "skips": _many(_record(lambda *edge: edge, Node.whole, Node.whole)),
    "ties": _many(_record(lambda *tie: tie, Node.whole, Node.whole)),
    "weightless": lambda node: frozenset(_many(Node.whole)(node)),
    "copies": lambda node: node.whole(1),
    "embed": Node.word,
    "loss": Node.word,
    "to_attention": Node.word,
    "layers": _many(Node.whole),
}
ANNOTATIONS: dict[str, Callable[[Node], Any]] = {
    "pairs": _many(_pair),
    "loans": _many(_record(Loan, Node.op, Node.op, Node.whole)),
    "gangs": _many(Node.op),
    "after": _many(_record(After, Node.op, Node.op)),
    "shares": _many(_record(lambda *share: share, Node.op, Node.fraction)),
}
TREE_KEYS = ("name", "shape", *ANNOTATIONS, "lanes")


def to_tree(schedule: Schedule) -> dict[str, Any]:
    """Everything a schedule says, without what has its default."""
    if not is_name(schedule.name):
        raise ShapeError(
            f"the name {schedule.name[:40]!r} cannot be printed on one line",
            hint="rename the schedule before writing it to a file",
        )
    tree: dict[str, Any] = {"name": schedule.name} if schedule.name else {}
    tree["shape"] = _shape_tree(schedule.shape)
    for key in ANNOTATIONS:
        if getattr(schedule, key):
            tree[key] = _plain(getattr(schedule, key))
    tree["lanes"] = [
        {"device": device, "stream": stream, "ops": list(map(str, ops))}
        for device, stream, ops in schedule.table.lanes()
    ]
    return tree


def _shape_tree(shape: Shape) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for field in fields(Shape):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        value = getattr(shape, field.name)
        if value != default:
            tree[field.name] = _plain(value)
    if len(set(shape.slice_share)) == 1:
        del tree["slice_share"][1:]
    return tree


def _plain(value: Any) -> Any:
    """A field as numbers, texts and lists of them."""
    if isinstance(value, Op | Fraction):
        return str(value)
    if isinstance(value, frozenset):
        return sorted(value)
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def from_tree(root: Node, name: str) -> Schedule:
    """The schedule that a tree says; `name` is for files that do not name it."""
    found = root.members(TREE_KEYS, needed=("shape", "lanes"))
    shape = _shape(found["shape"])
    annotations = {key: read(found[key]) for key, read in ANNOTATIONS.items() if key in found}
    lanes = _lanes(found["lanes"], shape)
    count = sum(len(ops) for _, _, ops in lanes)
    if not count:
        raise found["lanes"].fail("a schedule needs at least one op", "give a lane some ops")
    if reason := missing_ops(shape, count):
        raise found["shape"].fail(reason, "lower the sizes, or give every stage its ops")
    name = found["name"].name() if "name" in found else name
    return Schedule.from_lanes(name, shape, lanes, **annotations)


def _shape(node: Node) -> Shape:
    """Field by field, so that what the shape says against one is said of that one."""
    found = node.members(tuple(SHAPE_FIELDS), NEEDED)
    shape = Shape(1, 1, (1,))
    for key, read in SHAPE_FIELDS.items():
        if key in found:
            shape = _extend(shape, key, found[key], read(found[key]))
    return shape


def _extend(shape: Shape, key: str, node: Node, value: Any) -> Shape:
    """The shape with one more field, or the shape's refusal of it with its place."""
    if key == "slice_share" and len(value) == 1:
        value *= shape.microbatches
    try:
        return replace(shape, **{key: value})
    except ShapeError as error:
        raise node.fail(error.message, error.hint) from None


def _lanes(node: Node, shape: Shape) -> list[PlainLane]:
    lanes: list[PlainLane] = []
    seen: set[tuple[int, str]] = set()
    total = 0
    for item in node.items():
        found = item.members(("device", "stream", "ops"), needed=("device", "stream", "ops"))
        device, stream = _lane_head(found, shape)
        if (device, stream) in seen:
            raise item.fail(
                f"the lane {device} {stream} is given twice", "put its ops into one lane"
            )
        seen.add((device, stream))
        ops = found["ops"].ops()
        total += len(ops)
        if total > MAX_OPS:
            raise item.fail(f"there are more than {MAX_OPS:,} ops", "lower the microbatches")
        lanes.append((device, stream, ops))
    return lanes


def _lane_head(found: dict[str, Node], shape: Shape) -> tuple[int, str]:
    device, stream = found["device"].whole(), found["stream"].word()
    if device >= shape.devices:
        raise found["device"].fail(
            f"lane {device} {stream[:40]} is outside the {shape.devices} devices",
            f"devices are numbered from 0 to {shape.devices - 1}",
        )
    if stream not in STREAMS:
        raise found["stream"].fail(
            f"the stream {stream[:40]!r} is not known", nearest(stream[:40], STREAMS)
        )
    return device, stream
