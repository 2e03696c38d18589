"""Kernels of a layer one by one: products by shape, attention, and those that only move bytes."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import cycle

import torch
from torch import Tensor

from penstock.arch.attention_rule import AttentionRule
from penstock.arch.layers.norm import BEFORE
from penstock.cluster.measured import PRODUCT_PASSES
from penstock.data.batch import Microbatch
from penstock.estimate.kernel_parts import layer_moved, logits_moved
from penstock.estimate.products import Product
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.memory import KeyValues
from penstock.model.attention.piece import Piece, pieces_of
from penstock.model.attention.slice_attention import (
    SliceOfLayer,
    attention_backward,
    attention_forward,
)
from penstock.model.kernels.choice import fusible
from penstock.model.layers.expert_products import (
    PendingGroups,
    grouped_product,
    grouped_product_backward,
)
from penstock.model.layers.linear import add_product
from penstock.model.layers.lm_head import logits_to_gradient, wide_type
from penstock.model.layers.norm import norm, norm_backward
from penstock.model.layers.rope import rotate, rotate_back_into, rotate_into
from penstock.model.layers.swiglu import GATES
from penstock.profiling.case import TORCH_NAMES, ProfileCase
from penstock.profiling.measure.routing import routing_calls
from penstock.profiling.measure.timing import kernel_seconds
from penstock.profiling.modules import MeasuredRow
from penstock.profiling.sizes import AttentionSize, token_counts, whole_unit

OUT_OF_CACHE = 1 << 27
"""Bytes of weights that no cache holds: that of an H200 has 50 MB."""
MOST_COPIES = 32


class KernelBench:
    """Measures kernels on a device in the type of a case."""

    def __init__(self, case: ProfileCase, device: torch.device) -> None:
        self.case, self.device = case, device
        self.dtype: torch.dtype = getattr(torch, TORCH_NAMES[case.precision])

    def random(self, *shape: int) -> Tensor:
        return torch.randn(shape, device=self.device).to(self.dtype)

    def seconds(self, call: Callable[[], object]) -> float:
        return kernel_seconds(call, self.device)

    def product(self, passed: str, product: Product) -> MeasuredRow:
        """One product of a pass, or those of experts that one kernel has."""
        m, n, k = product.m, product.n, product.k
        grouped = product.together > 1
        call = self._grouped(passed, product) if grouped else self._call(passed, m, n, k)
        seconds = self.seconds(call)
        return {
            "pass": passed,
            "m": m,
            "n": n,
            "k": k,
            **({"groups": product.together} if grouped else {}),
            "seconds": seconds,
            "flops_per_second": product.flops / seconds,
        }

    def _grouped(self, passed: str, product: Product) -> Callable[[], object]:
        """All experts have as many rows."""
        groups, of_each = product.together, product.k if passed == "weights" else product.m
        rows = groups * of_each
        ends = torch.arange(1, groups + 1, device=self.device, dtype=torch.int32) * of_each
        if passed == "weights":
            gradient = torch.zeros(groups * product.m, product.n, device=self.device)
            x, dy = self.random(rows, product.n), self.random(rows, product.m)
            return partial(PendingGroups(0, x, dy, ends).add_to, gradient)
        x, forward = self.random(rows, product.k), passed == "forward"
        sides = (product.n, product.k) if forward else (product.k, product.n)
        weights = self._copies(self.random(groups, *sides))
        multiply = grouped_product if forward else grouped_product_backward
        return lambda: multiply(x, next(weights), ends)

    def _call(self, passed: str, m: int, n: int, k: int) -> Callable[[], object]:
        if passed == "weights":  # outputs x inputs, added up over k tokens
            x, dy = self.random(k, n), self.random(k, m)
            wide = torch.promote_types(self.dtype, torch.float32)
            gradients = self._copies(torch.zeros(m, n, dtype=wide, device=self.device))
            return lambda: add_product(next(gradients), x, dy)
        x = self.random(m, k)
        weight = self.random(n, k).t() if passed == "forward" else self.random(k, n)
        weights = self._copies(weight)
        return lambda: x @ next(weights)

    def _copies(self, matrix: Tensor) -> Iterator[Tensor]:
        """A matrix after the other, more than caches hold: in a step, other layers come between."""
        count = max(1, min(MOST_COPIES, OUT_OF_CACHE // matrix.nbytes))
        return cycle([matrix, *(matrix.clone() for _ in range(count - 1))])

    def attention(self, size: AttentionSize) -> Iterator[MeasuredRow]:
        """Forward and backward of a slice with what lies before it."""
        whole = size.past + size.tokens
        q, g = (self._heads(size.heads, size.tokens, size.head_size) for _ in range(2))
        k, v = (self._heads(size.kv_heads, size.tokens, size.head_size) for _ in range(2))
        memory = None
        if size.past:
            shape = (1, 1, size.kv_heads, whole, size.head_size)
            memory = KeyValues(*shape, dtype=self.dtype, device=self.device)
            for tensor in (*memory.keys, *memory.values):
                tensor.normal_()
        at = SliceOfLayer(_last_piece(size), memory, 0, AttentionRule(size.window))
        out, lse = attention_forward(q, k, v, at)
        kept = AttentionSaved(q, k, v, out, lse)

        def backward() -> None:
            if memory is not None:
                memory.open_gradients()
            attention_backward(g, kept, at)

        forward = self.seconds(lambda: attention_forward(q, k, v, at))
        for passed, seconds, flops in (
            ("forward", forward, size.flops),
            ("backward", self.seconds(backward), 2 * size.flops),
        ):
            yield {
                "pass": passed,
                **{name: value for name, value in size._asdict().items() if value is not None},
                "keys": size.pairs / size.tokens,
                "seconds": seconds,
                "flops_per_second": flops / seconds,
            }

    def _heads(self, heads: int, tokens: int, size: int) -> Tensor:
        """Token by token in memory, as projections give it."""
        return self.random(1, tokens, heads, size).transpose(1, 2)

    def moving(self) -> Iterator[MeasuredRow]:
        """Kernels that only move bytes, at the tokens of slices."""
        two_norms = replace(self.case.model, norms=BEFORE, qk_norm=False)
        for tokens in token_counts(self.case):
            moved = layer_moved(two_norms, whole_unit(tokens, 0))
            for (name, passed), call in self._moving_calls(tokens).items():
                seconds = self.seconds(call)
                yield {
                    "name": name,
                    "pass": passed,
                    "bytes": moved[name, passed],
                    "seconds": seconds,
                    "bytes_per_second": moved[name, passed] / seconds,
                }

    def _moving_calls(self, tokens: int) -> dict[tuple[str, str], Callable[[], object]]:
        """What a layer calls, twice where every layer has two of them."""
        model, forward, inputs = self.case.model, PRODUCT_PASSES[0], PRODUCT_PASSES[1]
        x, dy = self.random(tokens, model.hidden), self.random(tokens, model.hidden)
        weight, gradient = self.random(model.hidden), torch.zeros(model.hidden, device=self.device)
        _, r = norm(weight, x, 1e-5)
        heads = model.heads + model.kv_heads
        turned, out = (self.random(1, tokens, heads, model.head_size) for _ in range(2))
        cos, sin = (self.random(tokens, 1, model.head_size) for _ in range(2))
        turns = partial(rotate_into, out) if fusible(turned) else rotate
        width, gate = model.ffn_per_token, GATES[model.activation]
        both, inside = self.random(tokens, 2 * width), self.random(tokens, width)
        return {
            **(routing_calls(self.random, model, tokens) if model.mixture else {}),
            ("norm", forward): lambda: [norm(weight, x, 1e-5) for _ in range(2)],
            ("norm", inputs): lambda: [norm_backward(weight, gradient, x, r, dy) for _ in range(2)],
            ("sum", forward): lambda: [x + dy for _ in range(2)],
            ("sum", inputs): lambda: [x + dy for _ in range(2)],
            ("rotation", forward): lambda: turns(turned, cos, sin),
            ("rotation", inputs): lambda: rotate_back_into(out, turned, cos, sin),
            ("gate", forward): lambda: gate.forward(both),
            ("gate", inputs): lambda: gate.backward(both, inside),
        }

    def loss(self, tokens: int) -> MeasuredRow:
        """The loss of some tokens and the gradient of their logits, which lies where they were."""
        logits = self.random(tokens, self.case.model.vocabulary)
        labels = torch.zeros(tokens, dtype=torch.int64, device=self.device)
        losses = logits.new_empty(tokens, dtype=wide_type(logits))
        seconds = self.seconds(lambda: logits_to_gradient(logits, labels, losses, 1.0))
        unbounded = replace(self.case.model, logit_cap=None)
        moved = logits_moved(unbounded, logits.numel())
        return {
            "name": "loss",
            "pass": "inputs",
            "bytes": moved,
            "seconds": seconds,
            "bytes_per_second": moved / seconds,
        }


def _last_piece(size: AttentionSize) -> Piece:
    lengths = (size.past, size.tokens) if size.past else (size.tokens,)
    words = torch.zeros(1, sum(lengths), dtype=torch.int64)
    return pieces_of(0, Microbatch(words, words, ((0,),)), lengths, 1.0)[-1]
