"""Time our fused kernels, functions compiled by `torch.compile`, and Liger Kernel, side by side.

    python scripts/compare_kernels.py --tokens 32768 --hidden 2048 --ffn 8192 --words 128256

Needs one GPU; Liger's column is empty where it is not installed. All three compute the same from
the same tensors, in bfloat16: forward and backward of a norm (the weight's gradient included), of
the MLP's gate, the turn of queries and keys, and the head's loss with all its gradients. Printed is
the fastest of some repeats in ms and, for the head, GB above what stood before.
"""

import argparse
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from penstock.model.layers import lm_head, norm, rope, swiglu
from penstock.model.layers.views import Matrix

REPEATS = 10
EPSILON = 1e-5
Call = Callable[[], object]


class Contest(NamedTuple):
    """One piece of work, as each side does it."""

    name: str
    ours: Call
    compiled: Call
    liger: Call | None


def random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device="cuda")


def gradients(function: Callable[..., Any], *inputs: Tensor, d: Tensor) -> Call:
    """Forward and backward of a compiled function, through autograd as its users run it."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    return lambda: torch.autograd.grad(function(*leaves), leaves, d)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False)


def norms(tokens: int, hidden: int) -> Iterator[Contest]:
    x, dy, weight = random(tokens, hidden), random(tokens, hidden), random(hidden)
    total = torch.zeros(hidden, device="cuda")
    step = compiled(lambda x, weight: functional.rms_norm(x, (hidden,), weight, EPSILON))

    def ours() -> None:
        _, r = norm.norm(weight, x, EPSILON)
        norm.norm_backward(weight, total, x, r, dy)

    def liger() -> None:
        from liger_kernel.ops.rms_norm import rms_norm_backward, rms_norm_forward

        made = rms_norm_forward(x, weight, EPSILON, 0.0, "llama", False)
        _, _, r, block, warps, casting = made
        rms_norm_backward(dy, x, weight, r, 0.0, casting, block, warps, False, False)

    yield Contest("norm", ours, gradients(step, x, weight, d=dy), liger)


def gates(tokens: int, ffn: int) -> Iterator[Contest]:
    both, d = random(tokens, 2 * ffn), random(tokens, ffn)

    def gated(both: Tensor) -> Tensor:
        first, second = both.chunk(2, dim=-1)
        return functional.silu(first) * second

    def ours() -> None:
        swiglu.swiglu(both)
        swiglu.swiglu_backward(both, d)

    def liger() -> None:
        from liger_kernel.ops.swiglu import (
            swiglu_fused_gate_up_backward,
            swiglu_fused_gate_up_forward,
        )

        swiglu_fused_gate_up_forward(both)
        swiglu_fused_gate_up_backward(both, d)

    yield Contest("gate", ours, gradients(compiled(gated), both, d=d), liger)


def turns(tokens: int, heads: int, kv_heads: int, size: int) -> Iterator[Contest]:
    q, k = random(1, tokens, heads, size), random(1, tokens, kv_heads, size)
    angles = torch.randn(tokens, size // 2, device="cuda")
    cos, sin = (turn(torch.cat((angles, angles), -1)).bfloat16() for turn in (torch.cos, torch.sin))

    def turn(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return rope.rotate(q, cos[:, None], sin[:, None]), rope.rotate(
            k, cos[:, None], sin[:, None]
        )

    def ours() -> None:
        for x in (q, k):
            rope.rotate_into(x, x, cos[:, None], sin[:, None])

    def liger() -> None:
        from liger_kernel.ops.rope import rope_forward

        rope_forward(q.transpose(1, 2), k.transpose(1, 2), cos[None], sin[None])

    step = compiled(turn)
    yield Contest("rotation", ours, lambda: step(q, k), liger)


def heads(tokens: int, hidden: int, words: int) -> Iterator[Contest]:
    x, head = random(tokens, hidden), random(words, hidden) / hidden**0.5
    labels = torch.randint(words, (tokens,), device="cuda")

    def ours() -> None:
        total = torch.zeros(words, hidden, device="cuda")
        value, gradient = Matrix(head, None, 0), Matrix(total, None, 0)
        lm_head.head_loss_backward(value, gradient, x.clone(), labels, 1 / tokens)

    loss = compiled(lambda x, head, y: functional.cross_entropy((x @ head.t()).float(), y))

    def in_chunks() -> None:
        leaves = [tensor.detach().requires_grad_() for tensor in (x, head)]
        for part, wanted in zip(torch.split(leaves[0], 4096), torch.split(labels, 4096)):
            loss(part, leaves[1], wanted).backward()

    def liger() -> None:
        from liger_kernel.ops.fused_linear_cross_entropy import fused_linear_cross_entropy_forward

        fused_linear_cross_entropy_forward(
            x,
            head,
            labels,
            accum_dtype=torch.float32,
            compute_gradients=True,
            weight_requires_grad=True,
        )

    yield Contest("head", ours, in_chunks, liger)


def measured(call: Call) -> tuple[float, float]:
    """The fastest of some repeats in ms, and the most GB above what stood before."""
    call()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    found = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        found.append(float(start.elapsed_time(end)))
    return min(found), (torch.cuda.max_memory_allocated() - before) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = {"tokens": 32768, "hidden": 2048, "ffn": 8192, "words": 128256}
    for name, usual in {**sizes, "heads": 32, "kv-heads": 8, "head-size": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    at = parser.parse_args()
    sides = ["ours", "compiled", *(["liger"] if find_spec("liger_kernel") else [])]
    contests = (
        *norms(at.tokens, at.hidden),
        *gates(at.tokens, at.ffn),
        *turns(at.tokens, at.heads, at.kv_heads, at.head_size),
        *heads(at.tokens, at.hidden, at.words),
    )
    for contest in contests:
        for side in sides:
            ms, gigabytes = measured(getattr(contest, side))
            print(f"{contest.name:10} {side:10} {ms:9.3f} ms {gigabytes:7.2f} GB", flush=True)


if __name__ == "__main__":
    main()
