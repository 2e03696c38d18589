"""Kernels that know triangles and rectangles, and nothing of slices and documents.

A slice is given to such a kernel part by part, and the parts are joined by their log-sum-exp. The
backward of a part takes the output and the log-sum-exp of all parts together: with them, the
gradients of the parts add up.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.model.attention.aten import Gradients, Output
from penstock.model.attention.back_end import AttentionSaved, Fits, Leave
from penstock.model.attention.merge import merge
from penstock.model.attention.reach import AttentionPart, Reach
from penstock.model.attention.window_parts import parts

UNCUT = 1 << 62
"""A size that no part exceeds."""


@dataclass(frozen=True)
class Tiled:
    """A back end made of the forward and the backward of a kernel for parts."""

    name: str
    serves: Fits
    ahead: Callable[[Tensor, Tensor, Tensor, bool], Output]
    back: Callable[[Tensor, Tensor, Tensor, Tensor, Output, bool], Gradients]
    square: int = UNCUT
    """Most queries of a triangle given to the kernel."""
    block: int = UNCUT
    """Most keys of a rectangle in the backward: bounds the memory that its gradients take."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, reach: Reach) -> Output:
        output = OutputInPieces(q.shape[2], q.dtype)
        self.attend(q, k, v, parts(reach, self.square), output)
        return output.out.tensor, output.lse.tensor

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        some: Iterable[AttentionPart],
        output: "OutputInPieces",
    ) -> None:
        """Compute some parts, and join them with what the output has already."""
        for part in some:
            here, keys = _cuts(part)
            q_here, k_here, v_here = _ordered(part, q[:, :, here], k[:, :, keys], v[:, :, keys])
            causal = part.causal or part.mirrored
            new = _ordered(part, *self.ahead(q_here, k_here, v_here, causal))
            del q_here, k_here, v_here
            output.store(part.queries, *new) if part.fresh else output.merge(part.queries, *new)

    def backward(self, g: Tensor, saved: AttentionSaved, reach: Reach, leave: Leave) -> Gradients:
        dq, dk, dv = (TensorInPieces(saved.q.shape[2]) for _ in range(3))
        past = PastGradients(reach, leave)
        for part in self.blocks(parts(reach, self.square)):
            new_q, new_k, new_v = self.gradients(g, saved, part)
            dq.store(part.queries, new_q) if part.fresh else dq.add(part.queries, new_q)
            if part.keys.start < reach.past:
                past.take(part.keys, new_k, new_v)
            else:
                own = range(part.keys.start - reach.past, part.keys.stop - reach.past)
                for total, new in ((dk, new_k), (dv, new_v)):
                    # of all parts with these keys, the triangle comes first
                    total.store(own, new) if part.causal else total.add(own, new)
                del total, new
            del new_q, new_k, new_v  # before the next ones are there
        past.hand_on()
        return dq.tensor, dk.tensor, dv.tensor

    def gradients(self, g: Tensor, saved: AttentionSaved, part: AttentionPart) -> Gradients:
        """What a part adds to the gradients of its queries, keys and values."""
        here, keys = _cuts(part)
        queries = (g[:, :, here], saved.q[:, :, here])
        both = (saved.k[:, :, keys], saved.v[:, :, keys])
        merged = (saved.out[:, :, here], saved.lse[:, :, here])
        own, q, k, v, out, lse = _ordered(part, *queries, *both, *merged)
        causal = part.causal or part.mirrored
        dq, dk, dv = _ordered(part, *self.back(own, q, k, v, (out, lse), causal))
        return dq, dk, dv

    def blocks(self, whole: Iterable[AttentionPart]) -> Iterator[AttentionPart]:
        """The parts, with rectangles cut into blocks of keys."""
        for part in whole:
            step = len(part.keys) if part.causal or part.mirrored else self.block
            for start in range(0, len(part.keys), step):
                keys = part.keys[start : start + step]
                yield part._replace(keys=keys, fresh=part.fresh and start == 0)


class PastGradients:
    """Gradients of the keys before a slice, on their way to earlier slices, which want those of
    each key once. With a window several parts have the same keys; else no two have."""

    def __init__(self, reach: Reach, leave: Leave) -> None:
        self._reach, self._leave = reach, leave
        self._both: tuple[Tensor, Tensor] | None = None

    def take(self, keys: range, dk: Tensor, dv: Tensor) -> None:
        if self._reach.window is None:
            self._leave(keys, dk, dv)
            return
        if self._both is None:
            rows, heads, _, size = dk.shape
            shape = (rows, self._reach.past, heads, size)
            dk_all, dv_all = (dk.new_zeros(shape).transpose(1, 2) for _ in range(2))
            self._both = dk_all, dv_all
        for total, new in zip(self._both, (dk, dv)):
            total[:, :, keys.start : keys.stop].add_(new)

    def hand_on(self) -> None:
        """Leave what was added up."""
        if self._both is not None:
            self._leave(range(self._reach.past), *self._both)
            self._both = None


class TensorInPieces:
    """A tensor [rows, heads, length, ...] that comes in pieces along its length.

    A piece that is the whole is taken as it is; otherwise they are copied into one that lies token
    by token in memory.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._tensor: Tensor | None = None

    @property
    def tensor(self) -> Tensor:
        assert self._tensor is not None, "nothing was stored"
        return self._tensor

    def store(self, span: range, new: Tensor) -> None:
        """Put what nothing has been put to before."""
        if len(span) == self._length:
            self._tensor = new
            return
        if self._tensor is None:
            rows, heads, _, *rest = new.shape
            self._tensor = new.new_empty(rows, self._length, heads, *rest).transpose(1, 2)
        self._tensor[:, :, span.start : span.stop] = new

    def add(self, span: range, new: Tensor) -> None:
        """Add to what was stored."""
        self.tensor[:, :, span.start : span.stop].add_(new)


class OutputInPieces:
    """An attention output and its log-sum-exp, of which parts come one after the other.

    Every merge rounds to `dtype`, that of the output.
    """

    def __init__(self, length: int, dtype: torch.dtype) -> None:
        self.out, self.lse, self._dtype = TensorInPieces(length), TensorInPieces(length), dtype

    def store(self, queries: range, out: Tensor, lse: Tensor) -> None:
        """Put what queries see in their first part."""
        self.out.store(queries, out.to(self._dtype))
        self.lse.store(queries, lse)

    def merge(self, queries: range, out: Tensor, lse: Tensor) -> None:
        """Join what the same queries see in another part."""
        here = slice(queries.start, queries.stop)
        others = out.to(self._dtype), lse
        merge(self.out.tensor[:, :, here], self.lse.tensor[:, :, here], *others)


def _ordered(part: AttentionPart, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors as a kernel takes them: of a mirrored triangle in reverse order, in which it is
    a usual one; and back."""
    return tuple(each.flip(2) for each in tensors) if part.mirrored else tensors


def _cuts(part: AttentionPart) -> tuple[slice, slice]:
    """Where the part lies among the queries and among the keys."""
    return slice(part.queries.start, part.queries.stop), slice(part.keys.start, part.keys.stop)
