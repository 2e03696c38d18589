"""Schedules as aligned text, for tests that read like the picture."""

from typing import Any

from penstock.core.ops import Op, parse_op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape


def lanes(schedule: Schedule) -> list[list[str]]:
    """Every lane as words: its device, its stream where it is not compute, its ops.

    The stage is left out where a device has one; `+` braids a pair.
    """
    braided = {op: pair for pair in schedule.pairs for op in pair}
    found = []
    for device, stream, ops in schedule.table.lanes():
        words = [str(device)] + ([stream] if stream != "compute" else [])
        for position, op in enumerate(ops):
            text = str(op)
            if schedule.shape.devices == schedule.shape.stages:
                text = text.removeprefix(str(op.stage))
            if position and ops[position - 1] in braided.get(op, ()):
                words[-1] += f"+{text}"
            else:
                words.append(text)
        found.append(words)
    return found


def picture(text: str) -> list[list[str]]:
    """The same, from aligned text."""
    return [line.split() for line in text.strip().splitlines()]


def ops(text: str) -> tuple[Op, ...]:
    """Ops written one after the other, such as `0F0 1B0.1`."""
    return tuple(map(parse_op, text.split()))


def draw(text: str, shape: Shape, **annotations: Any) -> Schedule:
    """The schedule of a picture with full op names, such as `0 copy 0O0 0L0`."""
    rows = []
    for device, *words in picture(text):
        stream = words.pop(0) if words[0] in ("copy", "collective") else "compute"
        rows.append((int(device), stream, ops(" ".join(words))))
    return Schedule.from_lanes("drawn", shape, rows, **annotations)
