"""Seconds of one layer in each pass, from the shapes of its matrices and the bytes that it moves.

A layer is products with weights, attention, and kernels that only move bytes: norms, residual sums,
rotations, the gate. What the latter move, in elements for each token (h hidden, a query and g
key/value heads of d, f inside the MLP):

                     forward                            backward
    each norm        (read, write) h                    (read two, write) h
    two sums         2 x (read two, write) h            the same
    norms of heads   (read, write) (a + g) d            (read three, write two) (a + g) d
    rotation         (read, write) (a + g) d            the same
    gate             (read two, write) f                (read three, write two) f
    the same, GELU   (read three, write two) f          (read seven, write four) f

Rows of experts are taken from tokens and added up again (estimate/kernel_parts.py).
A norm that is not fused is a kernel for each of its steps, in 32 bits: `PLAIN_NORM` has the bytes.
Experts have a product each, with the rows of the tokens that chose them. Assumption: all are chosen
equally often.

Attention that is not fused writes scores and probabilities of all pairs, also of those that the
mask hides: `PAIR_MOVED` has the bytes (estimate/plain_kernels.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from operator import mul

from penstock.arch.config import ModelConfig
from penstock.arch.layers.expert_mlp import one_gradient_kernel
from penstock.arch.layers.lm_head import tokens_at_a_time
from penstock.arch.layers.record import wide_bytes
from penstock.cluster.gpu import KEEP_SCORES, AttentionKernel, Gpu, PassShares
from penstock.cluster.measured import PRODUCT_PASSES
from penstock.core.ops import SHARD_KINDS
from penstock.estimate.kernel_parts import (
    PRODUCT,
    KernelSeconds,
    LayerMatrix,
    adapter_matrices,
    adapter_matrix,
    hidden_norms,
    layer_matrix,
    layer_moved,
    logits_moved,
    moving_kernels,
    multiplied_matrices,
    norms_over_all_heads,
    split_logits_moved,
)
from penstock.estimate.layer_seconds import LayerSeconds, UnitTokens
from penstock.estimate.plain_kernels import CAPPED, PAIR_MOVED, PLAIN_NORM
from penstock.estimate.products import KERNEL_START, Product
from penstock.estimate.ring_times import ring_kernels, ring_moved
from penstock.estimate.window_times import (
    WIDE_HEAD,
    by_triangles,
    model_window,
    tokens_beyond,
    window_seconds,
)

HALF_SPEED_KEYS = 256
"""Keys for each query at which a fused kernel is half as fast as with many. Assumption: blocks of
128 on the diagonal are half empty, and a short row of blocks has no steady state."""
HALF_SPEED_OF_RECTANGLE = 128
"""The same for queries that see all of their keys, as most blocks of a ring: there is no diagonal.
Assumption."""
HALF_SPEED_OF_WINDOW = 384
"""The same in a window that one kernel knows, which has a diagonal on both sides. On an H200 with
32 heads of 128, windows of 512, 1,024 and 2,048 keys and 16,384 tokens take 0.736, 1.145 and 1.950
ms forward, and 1.961, 2.941 and 4.785 backward."""
NARROW_HEAD = PassShares(0.74, 0.80)
"""What heads of 64 reach of the speed of heads of 128: cuDNN on an H200, 9.1 and 25.8 ms against
13.5 and 41.4 ms for twice the FLOPs (docs/benchmarks.md). That other sizes below 128 are as 64 is
an assumption."""
WIDER_HEAD = PassShares(1.0, 0.8)
"""What heads of more than 128 reach of the speed of heads of 128 with flash2, which alone knows
them. From heads of 256 on an H200 with windows: 0.264 and 0.885 ms for 4 of them, 1,024 keys and
16,384 tokens."""
GROUPED_BYTES = 2
"""Size of the numbers of which one kernel multiplies the rows of all experts; of others, and where
weight gradients are long, each expert has a kernel (model/layers/expert_products.py)."""


@dataclass(frozen=True)
class LayerTimes:
    """A rank's part of a layer on a GPU, with some kernels."""

    part: ModelConfig
    attended: ModelConfig
    gpu: Gpu
    peak: float
    attention: AttentionKernel
    fused_norm: bool
    attention_again: bool = False
    """Whether a backward computes attention again, as far as it is not fused."""
    ring: int = 1
    """Ranks that pass keys round: attention has kernels for each of them, and joins its parts."""
    tensor: int = 1
    """Ranks that share the matrices: what is worked out of all heads, or of all words, is not
    fused."""

    def seconds(self, unit: UnitTokens) -> LayerSeconds:
        """Of one slice; ops of whole stages have none."""
        if not unit.whole:
            return LayerSeconds(0.0, 0.0, 0.0)
        each = map(self._times_of, self.products(unit.whole))
        forward, inputs, weights = map(sum, zip_longest(*each, fillvalue=0.0))
        small = self._moved(unit)
        attended = self.attention_seconds(unit)
        return LayerSeconds(
            forward + attended.forward + small.forward,
            inputs + attended.backward + small.backward,
            weights,
        )

    def parts(self, unit: UnitTokens) -> KernelSeconds:
        """All but attention, kernel by kernel, with norms that are fused."""
        found = KernelSeconds()
        for number, passes in enumerate(self.products(unit.whole)):
            for name, seconds in zip(PRODUCT_PASSES, self._times_of(passes)):
                found[f"{PRODUCT}{number}", name] = seconds
        kernels = moving_kernels(self.part, unit)
        for (name, passed), moved in self.moved(unit).items():
            found[name, passed] = kernels[name] * KERNEL_START + moved / self.memory_rate
        return found

    def attended_seconds(self, unit: UnitTokens) -> LayerSeconds:
        """The part of a layer's seconds that is attention."""
        return LayerSeconds(*self.attention_seconds(unit), 0.0)

    @property
    def product_rate(self) -> float:
        """FLOPs per second of large products."""
        return self.peak * self.gpu.reached.products

    @property
    def memory_rate(self) -> float:
        """Bytes per second of kernels that only move bytes."""
        return self.gpu.memory_rate * self.gpu.reached.memory

    @cached_property
    def matrices(self) -> list[LayerMatrix]:
        """Of each product of a layer; matrices of one input are one product."""
        return [layer_matrix(self.part, own) for own in multiplied_matrices(self.part)]

    @cached_property
    def adapters(self) -> list[LayerMatrix]:
        """Of each product of adapters."""
        return [adapter_matrix(own) for own in adapter_matrices(self.part)]

    def products(self, tokens: int) -> Iterator[tuple[Product, ...]]:
        """Forward, input gradient and weight gradient of each; the frozen have not the last. That
        adds to 32 bits, which are read and written."""
        frozen = self.matrices if self.adapters else []
        for number, matrix in enumerate((*self.matrices, *self.adapters)):
            passes = self.passes(tokens, matrix)
            yield passes[:2] if number < len(frozen) else passes

    def passes(self, tokens: int, matrix: LayerMatrix) -> tuple[Product, ...]:
        """Forward, input gradient and weight gradient of a product with a matrix."""
        size, (outputs, inputs) = self.part.element_bytes, matrix.sides
        groups, rows = matrix.dealt(tokens)
        kernels = 1 if size == GROUPED_BYTES else groups
        fused = kernels == 1 and self.fused_norm and one_gradient_kernel(rows, *matrix.sides)
        gradient = Product(outputs, inputs, rows, 2 * wide_bytes(size), adds=True)
        return (
            Product(rows, outputs, inputs, size * matrix.moved[0]).dealt(groups, kernels),
            Product(rows, inputs, outputs, size * matrix.moved[1]).dealt(groups, kernels),
            gradient.dealt(groups, 1 if fused else groups),
        )

    def head_seconds(self, tokens: int, flops: float, kind: str) -> float:
        """Products of an op with the head of so many FLOPs, and what the loss moves."""
        if not flops:
            return 0.0
        piece = self.head_piece(tokens)
        passes = self.passes(piece.m, LayerMatrix(piece.n, piece.k))[: 2 + self.part.trains_all]
        rate = sum(each.flops for each in passes) / sum(self._times_of(passes))
        return flops / rate + self.loss_moved(flops, kind) / self.memory_rate

    def loss_moved(self, flops: float, kind: str) -> float:
        """Bytes that the loss moves in products of so many FLOPs. A pass over a shard has a part of
        the words and of the products, and moves as much of it all."""
        logits, shards = self.logits_of(flops), kind in SHARD_KINDS
        if shards or self.tensor > 1:
            return split_logits_moved(self.part, logits, in_two_passes=shards)
        return logits_moved(self.part, logits)

    def logits_of(self, flops: float) -> float:
        """Logits that products of so many FLOPs belong to."""
        return flops / (2 * (2 + self.part.trains_all) * self.part.hidden)

    def head_piece(self, tokens: int) -> Product:
        """The product of the head with as many tokens as the loss takes at a time."""
        part = self.part
        most = tokens_at_a_time(part.vocabulary, part.element_bytes, fused=True)
        pieces = -(-tokens // most)
        return Product(-(-tokens // pieces), part.vocabulary, part.hidden, part.element_bytes)

    def lookup_rate(self, kind: str) -> float:
        """Bytes per second of the embedding in an op of a kind."""
        return self.memory_rate

    def end_rate(self, kind: str) -> float:
        """Bytes per second of an op at the end of a step."""
        return self.memory_rate

    @property
    def between(self) -> float:
        """Seconds from the end of an op to the start of the next."""
        return 0.0

    def _times_of(self, passes: tuple[Product, ...]) -> list[float]:
        return [self._product_seconds(each) for each in passes]

    def _product_seconds(self, product: Product) -> float:
        return product.seconds(self.gpu, self.product_rate, self.part.element_bytes)

    def moved(self, unit: UnitTokens) -> dict[tuple[str, str], float]:
        """Bytes of kernels that only move them, by name and pass. Ranks that share the heads have
        no fused norm over all of these."""
        moved = layer_moved(self.part, unit)
        return moved | norms_over_all_heads(self.part, unit.whole) if self.tensor > 1 else moved

    def _moved(self, unit: UnitTokens) -> PassShares:
        """Seconds of kernels that only move bytes."""
        moved = self.moved(unit)
        if not self.fused_norm:
            elements = self.part.hidden * unit.held * hidden_norms(self.part)
            each = (elements * moved * self.part.element_bytes / 2 for moved in PLAIN_NORM)
            moved |= zip((("norm", passed) for passed in PRODUCT_PASSES), each)
        starts = sum(moving_kernels(self.part, unit).values()) * KERNEL_START
        bytes_of = dict.fromkeys(PRODUCT_PASSES[:2], 0.0)
        for (_, passed), count in moved.items():
            bytes_of[passed] += count
        return PassShares(*(starts + each / self.memory_rate for each in bytes_of.values()))

    def attention_seconds(self, unit: UnitTokens) -> PassShares:
        """Of a layer's attention, forward and backward."""
        if not self.part.attends:
            return PassShares(0.0, 0.0)
        if self.attention in KEEP_SCORES or self.part.score_cap is not None:
            return self._plain_attention(unit)  # no fused kernel bounds scores
        flops, speeds = unit.pairs * self.attended.pair_flops, self._attention_speeds(unit)
        starts = KERNEL_START * ring_kernels(self.ring)
        joined = self.joined(unit)
        return PassShares(
            starts + flops / speeds.forward + joined.forward,
            starts + 2 * flops / speeds.backward + joined.backward,
        )

    def _attention_speeds(self, unit: UnitTokens) -> PassShares:
        """FLOPs per second of fused kernels, forward and backward."""
        reached: PassShares = getattr(self.gpu.reached, self.attention)
        keys = unit.keys / self.ring
        half_speed = HALF_SPEED_KEYS if self.ring == 1 else HALF_SPEED_OF_RECTANGLE
        window, size = self.reached_window(unit), self.part.head_size
        if window is not None and by_triangles(self.part, window):
            keys = window / 2
        elif window is not None:
            reached, half_speed = self.gpu.reached.flash2, HALF_SPEED_OF_WINDOW
        if size > WIDE_HEAD:
            reached = PassShares(*map(mul, self.gpu.reached.flash2, WIDER_HEAD))
        elif size < WIDE_HEAD:
            reached = PassShares(*map(mul, reached, NARROW_HEAD))
        speed = self.peak * keys / (keys + half_speed)
        return PassShares(speed * reached.forward, speed * reached.backward)

    def joined(self, unit: UnitTokens) -> PassShares:
        """Seconds of joining what a rank's queries see of each block of keys, or of a window."""
        window = self.reached_window(unit)
        if window is not None:
            return window_seconds(self.attended, unit, window, self.memory_rate)
        moved = ring_moved(self.attended, unit.attended, self.ring)
        return PassShares(*(each / self.memory_rate for each in moved))

    def reached_window(self, unit: UnitTokens) -> int | None:
        """The window of these layers, where a slice reaches beyond it. Members of a ring have it
        among them."""
        window = model_window(self.part)
        if window is None or self.ring > 1 or not unit.attended:
            return None
        return window if tokens_beyond(unit, window) else None

    def _plain_attention(self, unit: UnitTokens) -> PassShares:
        kernels: str = self.attention
        pairs = unit.square
        if self.part.score_cap is not None:  # a window is triangles, of which all is computed
            kernels, pairs = CAPPED, min(pairs, 2 * unit.pairs)
        flops = pairs * self.attended.pair_flops
        scores = pairs * self.attended.heads * self.part.element_bytes / 2
        forward, backward = (
            times * flops / self.product_rate + moved * scores / self.memory_rate
            for times, moved in zip((1, 2), PAIR_MOVED[kernels])
        )
        return PassShares(forward, backward + forward * self.attention_again)
