"""How much pipeline, tensor and data parallelism move, counted in elements.

Behind a layer that is split over `tensor` devices each of them holds the same output, so a plain
pipeline sends it that many times from stage to stage. Scattered, every device sends its own part to
its counterpart over its own network card, and the counterparts gather the parts over the fast links
inside their machine. Source: arXiv:2104.04473, sections 3.2 and 4.1; for sharded weights
arXiv:2211.05953.
"""

from fractions import Fraction

from penstock.core.schedule import Schedule


def sent_whole(tokens: int, hidden: int) -> Fraction:
    """What a device sends to the next stage, or back, where it sends all it holds."""
    return Fraction(tokens * hidden)


def sent_scattered(tokens: int, hidden: int, tensor: int) -> Fraction:
    """The same where each of the devices that share a layer sends its part."""
    return Fraction(tokens * hidden, tensor)


def gathered_elements(tokens: int, hidden: int, tensor: int) -> Fraction:
    """What a device then receives from the others of its machine: all parts but its own."""
    return (tensor - 1) * sent_scattered(tokens, hidden, tensor)


def reduced_in_layer(tokens: int, hidden: int, tensor: int, *, forwards: int = 1) -> Fraction:
    """What a device sends for the all-reduces of one layer, forward and back.

    Each pass has two of them, one behind attention and one behind the MLP, and an all-reduce is two
    rounds in which all parts but one are sent. A recomputed layer goes forward twice.
    """
    return 2 * (forwards + 1) * 2 * gathered_elements(tokens, hidden, tensor)


def collected_per_parameter(schedule: Schedule) -> tuple[Fraction, ...]:
    """Elements that each device's gathers and reductions receive, per parameter of its stages."""
    shape, moved = schedule.shape, [Fraction(0)] * schedule.shape.devices
    for device, stream, ops in schedule.table.lanes():
        if stream == "collective":
            moved[device] = sum((shape.share_of_stage(op.stage) for op in ops), Fraction(0))
    return tuple(moved)
