"""What a layer's attention does differently from plain causal attention: how far a query sees, and
how its scores are bounded."""

from typing import NamedTuple


class AttentionRule(NamedTuple):
    """The rule of one layer."""

    window: int | None = None
    """Keys that a query sees, its own included; None: all up to its own."""
    cap: float | None = None
    """Scores become cap x tanh(score / cap); None: they stay as they are."""

    def within(self, tokens: int) -> "AttentionRule":
        """The rule for a sequence of so many tokens, where a longer window makes no difference.

        >>> AttentionRule(window=8).within(8), AttentionRule(window=8).within(9).window
        (AttentionRule(window=None, cap=None), 8)
        """
        if self.window is None or self.window < tokens:
            return self
        return self._replace(window=None)


PLAIN_ATTENTION = AttentionRule()


def seen_half_pairs(end: int, window: int | None) -> int:
    """Query-key pairs of the first `end` tokens of a sequence, doubled to be whole. Up to the
    window a query has half a pair with itself; from there on it has as many pairs as the window
    has keys.

    >>> [seen_half_pairs(end, None) for end in (1, 2, 3)], seen_half_pairs(3, window=2)
    ([1, 4, 9], 8)
    """
    near = end if window is None else min(end, window)
    return near * (2 * end - near)
