"""Small legal schedules that carry the annotations a transform has to keep or refuse."""

from collections.abc import Callable
from fractions import Fraction

from penstock.core.schedule import After, Loan, Schedule
from penstock.core.shape import Shape
from transform.pictures import draw, ops


def braided() -> Schedule:
    """Two stages on one device; a forward and a backward run as one pair."""
    return draw(
        "0  0F0 1F0 0F1 1B0 1F1 0B0 1B1 0B1",
        Shape(1, 2, (1, 1)),
        pairs=(ops("0F1 1B0"), ops("1F1 0B0")),
    )


def offloaded() -> Schedule:
    """Half of the first activation leaves for the host and comes back before its backward."""
    return draw(
        """
        0       0F0 0F1 0F2 0B1 0B0 0B2
        0 copy  0O0 0L0
        """,
        Shape(1, 1, (1, 1, 1)),
        after=(After(*ops("0L0 0B1")),),
        shares=tuple((op, Fraction(1, 2)) for op in ops("0O0 0L0")),
    )


def ganged() -> Schedule:
    """Two devices do everything together."""
    return draw(
        """
        0  0F0 1F0 1B0 0B0
        1  0F0 1F0 1B0 0B0
        """,
        Shape(2, 2, (1,), copies=2),
        gangs=ops("0F0 1F0 1B0 0B0"),
    )


def lending() -> Schedule:
    """The second slice of device 0 lends work to the first slice of device 1, forward and back."""
    return draw(
        """
        0  0F0 0F0.1 0B0.1 0B0
        1  1F0 1F0.1 1B0.1 1B0
        """,
        Shape(2, 2, (2,)),
        loans=(Loan(*ops("0F0.1 1F0"), 1), Loan(*ops("0B0.1 1B0"), 1)),
    )


def gathered() -> Schedule:
    """One gather serves both microbatches, and the reduction waits for the last of them."""
    return draw(
        """
        0             0F0 0F1 0B0 0B1
        0 collective  0G0 0Z0
        """,
        Shape(1, 1, (1, 1)),
        after=(After(*ops("0Z0 0B1")), After(*ops("0F0 0G0"))),
    )


Sample = Callable[[], Schedule]

SAMPLES: tuple[Sample, ...] = (braided, offloaded, ganged, lending, gathered)
