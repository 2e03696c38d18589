"""Which tokens go through which layers: the numbers of a model that drops tokens on its way.

Most tokens do not need all layers. A model may keep the more important part of its tokens for the
layers in its middle, several times over, and put what these layers gave back among all tokens
behind them. A structure says where, along the model:

    TT(TT(TT)TT)TT     T a layer, ( some tokens are kept, ) those left out are there again

The level of a layer is how many brackets are open around it. A pair of brackets has a scorer, which
decides what is kept, and a bypass, which decides how much of what came back is taken. Source:
arXiv:2406.06571 (SUBLLM).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from penstock.arch.limits import LARGEST_OF_MODEL, refuse_count
from penstock.errors import ShapeError, shown

SCORER_RATE = 0.5
"""What the learning rate of scorers is multiplied by."""


class Pair(NamedTuple):
    """A pair of brackets: it opens in front of one layer and closes behind another."""

    number: int
    """Among all pairs, in the order in which they open."""
    first: int
    last: int
    level: int
    """Of the layers directly inside of it, from 1 on."""


class KeptSpan(NamedTuple):
    """Where the kept tokens of a slice stand among those of its sequence, on one level."""

    start: int
    end: int
    length: int
    """Kept tokens of the whole sequence."""


@dataclass(frozen=True)
class Subsampling:
    """Layers that only some tokens go through."""

    structure: str
    """`T` a layer, `(` tokens are left out, `)` they are there again; `TT(TT)TT`."""
    keep: float = 0.64
    """Share of its tokens that a bracket keeps."""
    bypass_steps: int = 20000
    """Steps in which the least that a bypass takes falls from 0.9 to 0.2."""
    balancer_steps: int = 8000
    """Steps in which the probability of the balancer falls from 1 to 0.25."""
    seed: int = 0
    """Of the draws that a training step makes."""

    def __post_init__(self) -> None:
        number = isinstance(self.keep, int | float) and not isinstance(self.keep, bool)
        if not number or not 0 < self.keep <= 1:
            raise ShapeError(f"keep is {shown(self.keep)}", hint="give a number above 0, at most 1")
        refuse_count("bypass_steps", self.bypass_steps, LARGEST_OF_MODEL)
        refuse_count("balancer_steps", self.balancer_steps, LARGEST_OF_MODEL)
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**32:
            raise ShapeError(f"seed is {shown(self.seed)}", hint="give a number below 2^32")
        if not isinstance(self.structure, str) or {*self.structure} - {*"T()"}:
            raise ShapeError(f"structure is {shown(self.structure)}", hint="write it as TT(TT)TT")
        self._refuse_nesting()

    def _refuse_nesting(self) -> None:
        depths = [*accumulate({"(": 1, ")": -1, "T": 0}[each] for each in self.structure)]
        if min(depths, default=0) < 0 or (depths and depths[-1] != 0):
            raise ShapeError(
                f"structure {shown(self.structure)} has brackets that do not match",
                hint="close every ( with a ) after it",
            )
        if "(" not in self.structure or "()" in self.structure:
            raise ShapeError(
                f"structure {shown(self.structure)} has no layer inside of a bracket",
                hint="put at least one T between ( and )",
            )

    @property
    def layers(self) -> int:
        return self.structure.count("T")

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """In the order in which they open.

        >>> Subsampling("T(T(T)T)").pairs[1]
        Pair(number=1, first=2, last=2, level=2)
        """
        found: dict[int, Pair] = {}
        opened: list[tuple[int, int]] = []
        layer = count = 0
        for each in self.structure:
            if each == "T":
                layer += 1
            elif each == "(":
                opened.append((count, layer))
                count += 1
            else:
                number, first = opened.pop()
                found[number] = Pair(number, first, layer - 1, len(opened) + 1)
        return tuple(found[number] for number in range(count))

    def opened(self, layer: int) -> tuple[Pair, ...]:
        """Pairs that open in front of a layer, in this order."""
        return tuple(pair for pair in self.pairs if pair.first == layer)

    def closed(self, layer: int) -> tuple[Pair, ...]:
        """Pairs that close behind a layer, in this order."""
        return tuple(pair for pair in reversed(self.pairs) if pair.last == layer)

    def around(self, boundary: int) -> tuple[Pair, ...]:
        """Pairs that are open between layer `boundary` - 1 and that layer, before what opens in
        front of it; outermost first.

        >>> [pair.number for pair in Subsampling("T(T(T)T)T").around(3)]
        [0]
        """
        return tuple(pair for pair in self.pairs if pair.first < boundary <= pair.last)

    def inside(self, layer: int) -> Pair | None:
        """The innermost pair around a layer; None where it sees all tokens."""
        around = [pair for pair in self.pairs if pair.first <= layer <= pair.last]
        return max(around, key=lambda pair: pair.level, default=None)

    def parent(self, pair: Pair) -> Pair | None:
        """The pair directly around another one; None where that is outermost."""
        found = [
            each
            for each in self.pairs
            if each.level == pair.level - 1 and each.first <= pair.first and pair.last <= each.last
        ]
        return found[0] if found else None

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """How many brackets are open around each layer.

        >>> Subsampling("TT(T(T)T)T").levels
        (0, 0, 1, 2, 1, 0)
        """
        return tuple(
            sum(pair.first <= layer <= pair.last for pair in self.pairs)
            for layer in range(self.layers)
        )

    def layers_met(self, power: int = 1) -> Fraction:
        """Layers that a token goes through, on average; with power 2 those that a pair of tokens
        goes through.

        >>> float(Subsampling("T(T(T)T)", keep=0.5).layers_met())
        2.25
        """
        share = Fraction(str(self.keep)) ** power
        return sum((share**level for level in self.levels), Fraction(0))

    @property
    def deepest(self) -> int:
        return max(self.levels)

    def kept(self, tokens: int, level: int = 1) -> int:
        """How many of so many tokens of a slice get to a level: floor((n + d - 1) / d) of n with
        d = 1 / keep, and so on.

        >>> Subsampling("T(T(T))").kept(4096), Subsampling("T(T(T))").kept(4096, 2)
        (2621, 1677)
        """
        share = Fraction(str(self.keep))
        for _ in range(level):
            tokens = tokens and 1 + int(share * (tokens - 1))
        return tokens

    def spans(self, lengths: Sequence[int]) -> list[tuple[KeptSpan, ...]]:
        """Where what is kept of each slice stands on every level, from level 1 on.

        >>> Subsampling("T(T)", keep=0.5).spans((8, 3))
        [(KeptSpan(start=0, end=4, length=6),), (KeptSpan(start=4, end=6, length=6),)]
        """
        by_level = []
        for level in range(1, self.deepest + 1):
            kept = [self.kept(length, level) for length in lengths]
            ends = [*accumulate(kept)]
            by_level.append([KeptSpan(end - own, end, ends[-1]) for own, end in zip(kept, ends)])
        return [*zip(*by_level)]

    def local_pairs(
        self, split: Sequence[range], homes: Mapping[int, int | None]
    ) -> frozenset[int]:
        """Pairs that open and close on different stages of one device: what goes past them can
        stay there.

        >>> halves = [range(0, 2), range(2, 4), range(4, 6)]
        >>> sorted(Subsampling("T(T(TT)T)T").local_pairs(halves, {0: 0, 1: 1, 2: 0}))
        [0]
        """
        stage_of = {layer: stage for stage, layers in enumerate(split) for layer in layers}
        ends = [(pair.number, stage_of[pair.first], stage_of[pair.last]) for pair in self.pairs]
        return frozenset(
            number for number, first, last in ends if first != last and homes[first] == homes[last]
        )

    @property
    def fewest(self) -> int:
        """Layers of the smallest model with the same brackets."""
        return sum("T" in run for run in self._runs)

    @property
    def _runs(self) -> list[str]:
        """Runs of layers, and brackets between them."""
        return self.structure.replace("(", " ( ").replace(")", " ) ").split()

    def over(self, layers: int) -> str:
        """A structure of so many layers with the same brackets: this one where it has as many,
        else as evenly spread as can be.

        >>> Subsampling("TTT(TT)TTT").over(4)
        'TT(T)T'
        """
        if layers == self.layers:
            return self.structure
        runs, inside = self._runs, self.fewest
        if layers < inside:
            raise ShapeError(
                f"structure {self.structure} has {inside} runs of layers, but the model has "
                f"{layers} layers",
                hint=f"take {inside} layers or more",
            )
        sizes = iter(layers // inside + (number < layers % inside) for number in range(inside))
        return "".join("T" * next(sizes) if "T" in run else run for run in runs)


_USUAL: Mapping[str, object] = {"window": None, "mixture": None, "lora": None, "blocks": ()}


def refuse_beside_subsampling(model: Any) -> None:
    """Refuse a configuration that does not fit its structure, or has what kept tokens cannot
    have."""
    subsampling: Subsampling = model.subsampling
    if subsampling.layers != model.layers:
        raise ShapeError(
            f"structure {subsampling.structure} has {subsampling.layers} layers, but the model has "
            f"{model.layers}",
            hint=f"give layers = {subsampling.layers}, or a T for each layer",
        )
    for name, usual in _USUAL.items():
        if getattr(model, name) != usual:
            raise ShapeError(
                f"{name} is {shown(getattr(model, name))}, but the model leaves out tokens",
                hint=f"leave out {name}, or subsampling",
            )
