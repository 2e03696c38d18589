"""What a slice is told where a model leaves out tokens: how many are kept, and when."""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.draws import Moment
from penstock.arch.subsampling import KeptSpan


class PieceLevels(NamedTuple):
    """Of one slice of a model that leaves out tokens. Without it, as many tokens are kept as have a
    score above 0."""

    spans: tuple[KeptSpan, ...]
    """What is kept on each level, from level 1 on."""
    moment: Moment | None = None
    """Of a training step; None where a model is only looked at, and nothing is drawn."""
    padding: Tensor | None = None
    """[rows, tokens], true for tokens that are never kept; None: there are none."""
