"""Numbers, labels and headlines, worded the same in every picture."""

from collections.abc import Sequence
from fractions import Fraction

from penstock.core.ops import Op
from penstock.core.shape import Shape
from penstock.sim.timeline import Timeline


def number(value: Fraction | float) -> str:
    """A number as a short decimal: exact where four places suffice, rounded otherwise.

    >>> number(Fraction(105, 4)), number(Fraction(2, 3)), number(Fraction(12))
    ('26.25', '0.6667', '12')
    """
    text = f"{float(value):.4f}".rstrip("0").rstrip(".")
    return "0" if text in ("", "-0") else text


def percent(value: Fraction, places: int = 1) -> str:
    """A share in percent.

    >>> percent(Fraction(3, 11)), percent(Fraction(3, 11), 2)
    ('27.3%', '27.27%')
    """
    return f"{float(100 * value):.{places}f}%"


def count_of(count: int, noun: str) -> str:
    """A count with its noun.

    >>> count_of(1, "device"), count_of(4, "device")
    ('1 device', '4 devices')
    """
    ending = "" if count == 1 else "es" if noun.endswith(("h", "s")) else "s"
    return f"{count} {noun}{ending}"


def size_words(shape: Shape) -> str:
    """What the shape is: devices, stages where they differ, microbatches, slices where cut."""
    parts = [count_of(shape.devices, "device")]
    if shape.stages != shape.devices:
        parts.append(count_of(shape.stages, "stage"))
    parts.append(count_of(shape.microbatches, "microbatch"))
    if max(shape.slices) > 1:
        least, most = min(shape.slices), max(shape.slices)
        parts.append(f"{most} slices each" if least == most else f"{least} to {most} slices")
    return ", ".join(parts)


def result_words(timeline: Timeline) -> list[str]:
    """What a step costs: makespan, bubble, largest memory of any device."""
    return [
        f"makespan {number(timeline.makespan)}",
        f"bubble {percent(timeline.bubble_makespan)}",
        f"peak {number(max(timeline.peak))}",
    ]


def name_words(timeline: Timeline) -> str:
    """The schedule's name, without characters that would steer a terminal or break a page."""
    return "".join(letter if letter.isprintable() else "?" for letter in timeline.name)


def title_words(timelines: Sequence[Timeline]) -> str:
    """What a picture shows, in one line."""
    *first, last = map(name_words, timelines)
    return "Timeline of " + " and ".join(filter(None, (", ".join(first), last)))


def summary_words(timelines: Sequence[Timeline]) -> str:
    """What a picture shows, for somebody who cannot see it."""
    facts = (
        ", ".join((f"{name_words(t)}: {size_words(t.schedule.shape)}", *result_words(t)))
        for t in timelines
    )
    return (
        "One row per device, time from left to right, idle time left empty, memory under each "
        f"device. {'; '.join(facts)}"
    )


def labels(op: Op, shape: Shape) -> list[str]:
    """Ways to write an op whose lane already says the device, from the fullest to the letter.

    A slice is never dropped alone: `F0` is slice 0, so it cannot stand for `F0.1`.

    >>> labels(Op("F", 5, 2, 1), Shape.even(4, 8, chunks=2, slices=2))
    ['5F2.1', 'F2.1', 'F']
    """
    short = f"{op.kind}{unit_words(op)}"
    stage = [f"{op.stage}{short}"] if shape.stages > shape.devices else []
    return [*stage, short, op.kind]


def unit_words(op: Op) -> str:
    """Microbatch and slice of an op, as they stand in its text."""
    return f"{op.mb}.{op.slice}" if op.slice else str(op.mb)
