"""What tensor-parallel ranks hold between the blocks of a layer, and how it gets in and out.

A block (attention, MLP) begins with matrices that are split by outputs and ends with one that is
split by inputs. Every rank needs all tokens at its beginning and has a part of a sum at its end.

    Scattered     between blocks each rank holds its share of the tokens, so that norms and
                  residuals are computed once: all-gather in, reduce-scatter out
    Replicated    between blocks each rank holds all tokens: nothing in, all-reduce out

The backward of the one is the other: gradients of a block's output are gathered, those of its input
added up. Between stages each rank hands on its share of the tokens either way, so that nothing
crosses a network twice.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from penstock.arch.dealing import deal, deal_sizes
from penstock.model.parallel.group import Pending, RankGroup, Work

Meanwhile = Callable[[], None]
"""Work that needs nobody, done while others are waited for."""

TokensUnderWay = tuple[Tensor, Pending | None]
"""A result, and what is to be waited for before it is read."""


def wait_for(pending: Pending | None) -> Work[None]:
    """Wait for what is under way, if there is something."""
    if pending is not None:
        yield pending


def add_up_tokens(
    shares: "TokenShares", part: Tensor, meanwhile: Meanwhile | None = None
) -> Work[Tensor]:
    """What is held of a sum; where it takes a while, there is something to do meanwhile."""
    total, pending = shares.add_up(part)
    if pending is not None:
        if meanwhile is not None:
            meanwhile()
        yield pending
    return total


def gather_tokens(shares: "TokenShares", held: Tensor, count: int) -> Work[Tensor]:
    """All tokens, of what is held of them."""
    whole, pending = shares.gather(held, count)
    yield from wait_for(pending)
    return whole


class TokenShares(Protocol):
    """How tensor-parallel ranks hold tokens [tokens, features] between blocks."""

    @property
    def ranks(self) -> int:
        """How many ranks share the matrices."""
        ...

    def gather(self, held: Tensor, count: int) -> TokensUnderWay:
        """All `count` tokens, of what is held of them."""
        ...

    def add_up(self, part: Tensor) -> TokensUnderWay:
        """What is held of the sum of all ranks' parts, each of all tokens; the part is gone."""
        ...

    def hold(self, whole: Tensor) -> Tensor:
        """What is held of all tokens, which every rank has."""
        ...

    def hand_on(self, held: Tensor) -> Tensor:
        """What goes to the next stage."""
        ...

    def take_over(self, handed: Tensor, count: int) -> TokensUnderWay:
        """What is held, of what came from another stage."""
        ...

    def handed(self, count: int) -> int:
        """How many of `count` tokens go to the next stage."""
        ...


class AllTokens:
    """One rank has all."""

    ranks = 1

    def gather(self, held: Tensor, count: int) -> TokensUnderWay:
        return held, None

    def add_up(self, part: Tensor) -> TokensUnderWay:
        return part, None

    def hold(self, whole: Tensor) -> Tensor:
        return whole

    def hand_on(self, held: Tensor) -> Tensor:
        return held

    def take_over(self, handed: Tensor, count: int) -> TokensUnderWay:
        return handed, None

    def handed(self, count: int) -> int:
        return count


ALL_TOKENS = AllTokens()


@dataclass(frozen=True)
class Scattered:
    """Each rank has its share of the tokens."""

    group: RankGroup

    @property
    def ranks(self) -> int:
        return self.group.size

    def gather(self, held: Tensor, count: int) -> TokensUnderWay:
        return self.group.gather(held, deal_sizes(count, self.group.size))

    def add_up(self, part: Tensor) -> TokensUnderWay:
        return self.group.scatter_sum(part, deal_sizes(len(part), self.group.size))

    def hold(self, whole: Tensor) -> Tensor:
        own = deal(len(whole), self.group.index, self.group.size)
        return whole[own.start : own.stop].clone()  # a view would keep all of it

    def hand_on(self, held: Tensor) -> Tensor:
        return held

    def take_over(self, handed: Tensor, count: int) -> TokensUnderWay:
        return handed, None

    def handed(self, count: int) -> int:
        return len(deal(count, self.group.index, self.group.size))


@dataclass(frozen=True)
class Replicated:
    """Each rank has all tokens."""

    group: RankGroup

    @property
    def ranks(self) -> int:
        return self.group.size

    def gather(self, held: Tensor, count: int) -> TokensUnderWay:
        return held, None

    def add_up(self, part: Tensor) -> TokensUnderWay:
        return part, self.group.add_up(part)

    def hold(self, whole: Tensor) -> Tensor:
        return whole

    def hand_on(self, held: Tensor) -> Tensor:
        own = deal(len(held), self.group.index, self.group.size)
        return held[own.start : own.stop].clone()  # a view would keep all of it until it is sent

    def take_over(self, handed: Tensor, count: int) -> TokensUnderWay:
        return self.group.gather(handed, deal_sizes(count, self.group.size))

    def handed(self, count: int) -> int:
        return len(deal(count, self.group.index, self.group.size))
