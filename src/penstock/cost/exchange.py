"""What a loan of attention work moves between two devices.

Going forward the heavy device sends keys and values of the lent slices and its queries, and gets a
partial output back with its log-sum-exp. Going back it sends all of these and the gradient of the
output, and gets gradients of queries, keys and values back. Keys and values of past slices are
there early, so they can travel before the layer starts; the rest is on the way while both compute.
Source: arXiv:2504.14519, released code.
"""

from fractions import Fraction
from typing import NamedTuple

FORWARD_KINDS = "FNR"


class Exchange(NamedTuple):
    """Bytes to the device that helps, and bytes back."""

    there: Fraction
    back: Fraction


def exchange_of(kind: str, queries: Fraction, lent: Fraction, lse: Fraction) -> Exchange:
    """An output is as large as the queries, a gradient as what it is the gradient of; `lent` are
    the keys and values."""
    if kind in FORWARD_KINDS:
        return Exchange(lent + queries, queries + lse)
    return Exchange(lent + 3 * queries + lse, lent + queries)
