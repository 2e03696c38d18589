"""Seconds of one layer on a machine that was profiled: rates of its own kernels.

The work is the same as on any GPU (estimate/layer_times.py): products by shape, attention by pairs,
kernels that move bytes. Only the rates are measured, each at the sizes of this layer, and the sums
are multiplied by what a step makes of kernels. Products of experts that have a kernel each were
measured one by one: all of them take as many times as long.

A product that is measured alone finds its input in the caches of a host, and its output stays in
them. In a step other kernels come between, and what products then take longer grows with what they
read and write beside weights. A matrix of h x h has 2 / h of these for each multiplication: with
matrices twice as wide, a step makes products longer by half as large a share.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

from penstock.arch.layers.lm_head import tokens_at_a_time
from penstock.cluster.gpu import PassShares
from penstock.cluster.measured import ATTENTION_PASSES as _PASSES
from penstock.cluster.measured import PRODUCT_PASSES, PRODUCTS_OF, MeasuredKernels
from penstock.estimate.kernel_parts import (
    HEAD_NORMS,
    HEADS_EXCHANGED,
    PRODUCT,
    KernelSeconds,
    layer_moved,
    logits_moved,
)
from penstock.estimate.layer_seconds import LayerSeconds, UnitTokens
from penstock.estimate.layer_times import LayerTimes
from penstock.estimate.products import Product
from penstock.estimate.window_times import by_triangles

LIKE_FORWARD = "FNR"
MEASURED_AS = {HEAD_NORMS: "norm", HEADS_EXCHANGED: "sum"}
"""Kernels that have the rate of others: those of heads are the same kernel, of more and shorter
rows; copies read and write as sums do."""


def activations_of(matrices: Sequence[tuple[int, int]]) -> float:
    """What products with some matrices read and write beside these, for each multiplication.

    >>> activations_of([(64, 64)]), activations_of([(128, 128)])
    (0.03125, 0.015625)
    """
    return sum(map(sum, matrices)) / sum(outputs * inputs for outputs, inputs in matrices)


def activations_by_part(times: LayerTimes) -> dict[str, float]:
    """The same of a layer and of the head."""
    layer = [each.sides for each in times.matrices for _ in range(each.met)]
    head = [(times.part.vocabulary, times.part.hidden)]
    return dict(zip(PRODUCTS_OF, map(activations_of, (layer, head))))


@dataclass(frozen=True)
class ProfiledTimes(LayerTimes):
    """A rank's part of a layer, with the kernels of a profile."""

    sliced: bool = True
    """Whether sequences are cut into slices, whose keys and gradients of keys are in memory."""

    @property
    def kernels(self) -> MeasuredKernels:
        found = self.gpu.measured
        assert found is not None, "only a machine with a profile has these times"
        return found

    def seconds(self, unit: UnitTokens) -> LayerSeconds:
        if not unit.whole:
            return LayerSeconds(0.0, 0.0, 0.0)
        parts = self.parts(unit)
        return LayerSeconds(
            *(
                self._whole(name) * (self.kernels.fixed[name] + self._in_step(name, parts) + more)
                for name, more in zip(PRODUCT_PASSES, self._attended(unit))
            )
        )

    def _in_step(self, passed: str, parts: KernelSeconds) -> float:
        """What a step makes of the kernels of a pass."""
        products = parts.of_products(passed)
        others = self.kernels.in_step[passed] * (parts.of(passed) - products)
        return others + self._of_products(passed, "layer") * products

    def _of_products(self, passed: str, part: str) -> float:
        """How many times longer products take in a step, at the widths of this model."""
        factor, known = self.kernels.in_step[passed], self.kernels.activations
        if not known or factor <= 1:
            return factor
        return 1 + (factor - 1) * self._activations[part] / known[part]

    @cached_property
    def _activations(self) -> dict[str, float]:
        return activations_by_part(self)

    def attended_seconds(self, unit: UnitTokens) -> LayerSeconds:
        each = zip(PRODUCT_PASSES, self._attended(unit))
        return LayerSeconds(*(self._whole(name) * seconds for name, seconds in each))

    def _attended(self, unit: UnitTokens) -> LayerSeconds:
        """What a step makes of attention, in slices of a sequence."""
        factor, attended = self.kernels.in_step, self.attention_seconds(unit)
        forward = factor["attention forward"] * attended.forward
        return LayerSeconds(forward, factor["attention backward"] * attended.backward, 0.0)

    def _whole(self, passed: str) -> float:
        """How much longer a pass takes where sequences are not cut."""
        return 1.0 if self.sliced else self.kernels.of_whole[passed]

    def parts(self, unit: UnitTokens) -> KernelSeconds:
        """All but attention, kernel by kernel."""
        found = KernelSeconds()
        for number, passes in enumerate(self.products(unit.whole)):
            for name, product in zip(PRODUCT_PASSES, passes):
                found[f"{PRODUCT}{number}", name] = self._pass_seconds(name, product)
        for (name, passed), moved in self.moved(unit).items():
            rate = self.kernels.moving_rate(MEASURED_AS.get(name, name), passed, moved)
            found[name, passed] = moved / rate
        return found

    def attention_seconds(self, unit: UnitTokens) -> PassShares:
        """Forward and backward, one by one; FLOPs of a backward count as twice the forward's."""
        if not self.part.attends:
            return PassShares(0.0, 0.0)
        if self.part.score_cap is not None:
            return self._plain_attention(unit)  # other kernels than those that were measured
        flops = unit.pairs * self.attended.pair_flops
        tokens = max(unit.attended, 1) / unit.rows
        heads = (self.attended.heads, self.part.head_size)
        at = (tokens, unit.keys / self.ring / tokens)
        window = self.reached_window(unit)
        if window is not None and self.kernels.windowed:
            rates = [self.kernels.windowed[name].at((*heads, window), at) for name in _PASSES]
            return PassShares(*(times * flops / rate for times, rate in zip((1, 2), rates)))
        if window is not None and by_triangles(self.part, window):  # half of their own tokens
            at = (float(window), 0.5)
        rates = [self.kernels.attention[name].at(heads, at) for name in _PASSES]
        attended = (times * flops / rate for times, rate in zip((1, 2), rates))
        return PassShares(*(each + more for each, more in zip(attended, self.joined(unit))))

    def moved(self, unit: UnitTokens) -> dict[tuple[str, str], float]:
        """On a host no norm is fused, and what was measured is one of as many kernels."""
        return layer_moved(self.part, unit) if self.kernels.on_host else super().moved(unit)

    def head_seconds(self, tokens: int, flops: float, kind: str) -> float:
        if not flops:
            return 0.0
        alone = self.head_alone(tokens, flops, kind)
        sliced = self.kernels.fixed["head"] + self._of_products("head", "head") * alone
        return self._whole("head") * sliced

    def head_alone(self, tokens: int, flops: float, kind: str) -> float:
        """Products with the head of so many FLOPs, a third in each pass, and the loss between
        them; one by one."""
        m, n, k = (getattr(self.head_piece(tokens), name) for name in "mnk")
        shapes = {"forward": (m, n, k), "inputs": (m, k, n), "weights": (n, k, m)}
        rates = (self.kernels.product_rate(name, *shape) for name, shape in shapes.items())
        moved, piece = self.loss_moved(flops, kind), logits_moved(self.part, m * n)
        loss = moved / self.kernels.moving_rate("loss", "inputs", piece)
        return sum(flops / 3 / rate for rate in rates) + loss

    def loss_moved(self, flops: float, kind: str) -> float:
        """On a host no loss is fused, and what was measured is one of as many kernels."""
        if self.kernels.on_host:
            return logits_moved(self.part, self.logits_of(flops))
        return super().loss_moved(flops, kind)

    def head_piece(self, tokens: int) -> Product:
        part = self.part
        most = tokens_at_a_time(part.vocabulary, part.element_bytes, fused=self.fused_norm)
        pieces = -(-tokens // most)
        return Product(-(-tokens // pieces), part.vocabulary, part.hidden, part.element_bytes)

    def lookup_rate(self, kind: str) -> float:
        passed = "forward" if kind in LIKE_FORWARD else "inputs"
        return self.kernels.rates[f"lookup {passed}"]

    def end_rate(self, kind: str) -> float:
        return self.kernels.rates["norm" if kind == "V" else "update"]

    @property
    def between(self) -> float:
        return self.kernels.between

    def _pass_seconds(self, passed: str, product: Product) -> float:
        sides = product.m, product.n, product.k
        return product.flops / self.kernels.product_rate(passed, *sides, product.together)


def profiled_times(times: LayerTimes, sliced: bool) -> ProfiledTimes:
    """The same with the kernels of the GPU's profile."""
    values = {each.name: getattr(times, each.name) for each in fields(times)}
    return ProfiledTimes(**values, sliced=sliced)
