"""Sizes at which kernels are measured, so that those of other models lie near one of them.

A model that is estimated has other widths and other slices than the one that was profiled. So its
matrices are measured at half and at twice their widths too, with fewer and with more tokens than
its slices have, those of experts with the rows that these have of them; attention at several
tokens, each with several lengths before them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.arch.attention_rule import seen_half_pairs
from penstock.arch.config import ModelConfig
from penstock.cluster.measured import PRODUCT_PASSES
from penstock.estimate.kernel_parts import LayerMatrix
from penstock.estimate.layer_seconds import UnitTokens
from penstock.estimate.layer_times import LayerTimes
from penstock.estimate.products import Product
from penstock.profiling.case import ProfileCase

FEWEST_TOKENS = 16
MatrixSides = tuple[int, int]
"""Outputs and inputs."""


class AttentionSize(NamedTuple):
    """A slice with tokens before it."""

    heads: int
    kv_heads: int
    head_size: int
    tokens: int
    past: int
    window: int | None = None

    @property
    def pairs(self) -> float:
        """Queries and keys that are not masked, as the cost model counts them."""
        ends = self.past + self.tokens, self.past
        last, first = (seen_half_pairs(end, self.window) for end in ends)
        return (last - first) / 2

    @property
    def flops(self) -> float:
        """Of the forward."""
        return 4 * self.heads * self.head_size * self.pairs


def token_counts(case: ProfileCase) -> list[int]:
    """Tokens of slices: a quarter of the shortest to the whole sequence, in steps of two."""
    least, most = max(FEWEST_TOKENS, min(case.lengths) // 4), case.tokens
    found = []
    while least < most:
        found.append(least)
        least *= 2
    return [*found, most]


def product_sizes(case: ProfileCase, times: LayerTimes) -> Iterator[tuple[str, Product]]:
    """Products of a layer and of the head by pass."""
    layer = {each for matrix in times.matrices for each in _layer_products(case, times, matrix)}
    yield from sorted(layer, key=_order)
    words, hidden = case.model.vocabulary, case.model.hidden
    head = {(words, int(hidden * width)) for width in case.widths} | {(max(1, words // 2), hidden)}
    pieces = {times.head_piece(tokens).m for tokens in token_counts(case)}
    for matrix in sorted(each for each in head if min(each) > 0):
        for tokens in sorted(pieces):
            yield from _passes(tokens, matrix, case.model.element_bytes)


def _order(sized: tuple[str, Product]) -> tuple[int | str, ...]:
    """The same for all ranks, whose rows are compared one by one."""
    passed, product = sized
    return product.n, product.k, product.m, product.together, passed


def _layer_products(
    case: ProfileCase, times: LayerTimes, matrix: LayerMatrix
) -> Iterator[tuple[str, Product]]:
    """Products with a matrix of the layer; with those of experts one of the kernels that have a
    part of them."""
    for width in case.widths:
        outputs, inputs = int(matrix.outputs * width), int(matrix.inputs * width)
        if not min(outputs, inputs):
            continue
        wider = matrix._replace(outputs=outputs, inputs=inputs)
        for tokens in token_counts(case):
            for passed, product in zip(PRODUCT_PASSES, times.passes(tokens, wider)):
                yield passed, product._replace(kernels=1)


def _passes(tokens: int, matrix: MatrixSides, size: int) -> Iterator[tuple[str, Product]]:
    """A product and both of its gradients."""
    outputs, inputs = matrix
    shapes = ((tokens, outputs, inputs), (tokens, inputs, outputs), (outputs, inputs, tokens))
    for passed, (m, n, k) in zip(PRODUCT_PASSES, shapes):
        yield passed, Product(m, n, k, size)


def attention_sizes(case: ProfileCase) -> Iterator[AttentionSize]:
    """The heads of the model on slices with different lengths before them; heads of 64 and of 128
    both, as most models have one of the two."""
    model = case.model
    for size in dict.fromkeys((model.head_size, *_other_heads(model))):
        for tokens in token_counts(case):
            for past in sorted({0, tokens, case.tokens, 4 * case.tokens}):
                if past + tokens <= 4 * case.tokens + min(case.lengths):
                    yield AttentionSize(model.heads, model.kv_heads, size, tokens, past)
    yield from _windowed_sizes(case)


def _windowed_sizes(case: ProfileCase) -> Iterator[AttentionSize]:
    """The same in layers with a window, of slices that reach beyond it."""
    model, window = case.model, case.model.window
    if window is None:
        return
    for tokens in token_counts(case):
        for past in sorted({0, tokens, case.tokens}):
            if past + tokens > window:
                heads = model.heads, model.kv_heads, model.head_size
                yield AttentionSize(*heads, tokens, past, window)


def _other_heads(model: ModelConfig) -> tuple[int, ...]:
    """The other of two usual sizes, for a model that has one of them."""
    return {64: (128,), 128: (64,)}.get(model.head_size, ())


def whole_unit(tokens: int, past: int) -> UnitTokens:
    """A slice of a rank that has all of it."""
    pairs = AttentionSize(1, 1, 1, tokens, past).pairs
    return UnitTokens(tokens, tokens, tokens, pairs, float(tokens * (past + tokens)))
