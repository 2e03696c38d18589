"""Fused kernels against PyTorch's in more precision: values, gradients, the same bits again."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from loops import each
from penstock.arch.layers.parameter import Parameter
from penstock.arch.ownership import Ownership
from penstock.arch.parameter_layout import lay_out
from penstock.data.batch import IGNORE
from penstock.model.kernels.choice import fusible
from penstock.model.layers import lm_head, norm, rope, swiglu
from penstock.model.layers.embedding import add_rows
from penstock.model.layers.views import Matrix
from penstock.model.stages.weights import Weights
from penstock.run.step.optimizer import AdamW, FusedAdamW, TorchAdamW

if torch.cuda.is_available():
    from penstock.model.kernels.adamw import Blocks, fused_squares
    from penstock.model.kernels.expert_gradient import add_expert_gradients

pytestmark = [
    pytest.mark.torch,
    pytest.mark.processes,  # Triton starts a compiler
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

BOUNDS = {torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-10}
"""Largest difference over the largest value: about one rounding of the result."""

every_type = each("dtype", list(BOUNDS))


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def matrix(weight: Tensor) -> Matrix:
    return Matrix(weight, None, 0)


def close(ours: Tensor, exact: Tensor, bound: float) -> None:
    assert float((ours.double() - exact).abs().max()) <= bound * float(exact.abs().max())


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@every_type
@each("tokens", [1, 7, 1000])
@each("size", [64, 96, 2048, 5120])
def test_norm(dtype: torch.dtype, tokens: int, size: int) -> None:
    x, dy, residual = (numbers(tokens, size, dtype=dtype) for _ in range(3))
    weight = numbers(size, dtype=dtype)
    gradient, exact_gradient = torch.ones(size, device="cuda"), torch.ones(size, device="cuda")
    assert fusible(x)
    y, r = norm.norm(weight, x, 1e-5)
    wide = [tensor.double() for tensor in (weight, x, dy)]
    exact_y, exact_r = norm.plain_norm(wide[0], wide[1], 1e-5)
    exact_gradient = exact_gradient.double()
    exact = norm.plain_norm_backward(wide[0], exact_gradient, wide[1], exact_r, wide[2])
    ours = norm.norm_backward(weight, gradient, x, r, dy, residual)
    close(y, exact_y, 2 * BOUNDS[dtype])
    close(r, exact_r, 1e-6)
    close(ours, exact + residual.double(), 2 * BOUNDS[dtype])
    close(gradient, exact_gradient, 1e-5)


@every_type
def test_norm_of_heads_that_lie_in_a_wider_product(dtype: torch.dtype) -> None:
    rows, tokens, heads, size = 2, 33, 3, 64
    product = numbers(rows, tokens, heads + 2, size, dtype=dtype)
    x, weight = product[:, :, 1 : 1 + heads], numbers(size, dtype=dtype)
    dy = numbers(rows, tokens, heads + 1, size, dtype=dtype)[:, :, :heads]
    gradient = torch.zeros(size, device="cuda")
    y, r = norm.norm(weight, x, 1e-5)
    assert y.is_contiguous()
    assert r.shape == (rows, tokens, heads, 1)
    wide = [tensor.double() for tensor in (weight, x, dy)]
    exact_y, exact_r = norm.plain_norm(wide[0], wide[1], 1e-5)
    exact_gradient = gradient.double()
    exact = norm.plain_norm_backward(wide[0], exact_gradient, wide[1], exact_r, wide[2])
    close(y, exact_y, 2 * BOUNDS[dtype])
    close(norm.norm_backward(weight, gradient, x, r, dy), exact, 2 * BOUNDS[dtype])
    close(gradient, exact_gradient, 1e-5)


@every_type
@each(("tokens", "width"), [(1, 16), (5, 1000), (300, 8192)])
def test_swiglu(dtype: torch.dtype, tokens: int, width: int) -> None:
    both, d = numbers(tokens, 2 * width, dtype=dtype), numbers(tokens, width, dtype=dtype)
    close(swiglu.swiglu(both), swiglu.plain_swiglu(both.double()), BOUNDS[dtype])
    exact = swiglu.plain_swiglu_backward(both.double(), d.double())
    close(swiglu.swiglu_backward(both, d), exact, BOUNDS[dtype])


@every_type
@each("size", [32, 96, 128])
def test_rope(dtype: torch.dtype, size: int) -> None:
    rows, tokens, heads = 2, 50, 5
    product = numbers(rows, tokens, heads + 3, size, dtype=dtype)
    x = product[:, :, 2 : 2 + heads]
    turns = numbers(tokens, size // 2)
    angles = torch.cat((turns, turns), -1)
    cos, sin = angles.cos()[:, None].to(dtype), angles.sin()[:, None].to(dtype)
    exact = rope.rotate(x.double(), cos.double(), sin.double())
    back = torch.empty(rows, heads, tokens, size, device="cuda", dtype=dtype).transpose(1, 2)
    rope.rotate_back_into(back, x, cos, sin)
    close(back, rope.rotate_back(x.double(), cos.double(), sin.double()), BOUNDS[dtype])
    around = product.clone()
    rope.rotate_into(x, x, cos, sin)
    close(x, exact, BOUNDS[dtype])
    assert torch.equal(product[:, :, :2], around[:, :, :2])
    assert torch.equal(product[:, :, 2 + heads :], around[:, :, 2 + heads :])


@every_type
@each("at_a_time", [1, 10**5, 1 << 30])
def test_head(dtype: torch.dtype, at_a_time: int) -> None:
    tokens, hidden, words = 130, 64, 5003
    head, x = numbers(words, hidden, dtype=dtype) / 8, numbers(tokens, hidden, dtype=dtype)
    labels = torch.randint(words, (tokens,), device="cuda")
    labels[::7] = IGNORE
    gradient = torch.ones(words, hidden, device="cuda", dtype=torch.float32)
    wide, dx, exact_dx = head.double(), x.clone(), x.double()
    with pytest.MonkeyPatch.context() as patch:
        for limit in ("FUSED_LOGITS_BYTES", "LOGITS_AT_A_TIME"):
            patch.setattr(f"penstock.arch.layers.lm_head.{limit}", at_a_time)
        alone = lm_head.head_loss(matrix(head), x, labels)
        loss = lm_head.head_loss_backward(matrix(head), matrix(gradient), dx, labels, 0.25)
    exact_gradient = torch.ones_like(wide)
    both = matrix(wide), matrix(exact_gradient)
    exact = lm_head.head_loss_backward(*both, exact_dx, labels, 0.25)
    close(loss, exact, 1e-3 if dtype != torch.float32 else 1e-5)
    assert torch.equal(alone, loss)
    close(dx, exact_dx, 8 * BOUNDS[dtype])
    close(gradient, exact_gradient, 8 * BOUNDS[dtype])
    assert not dx[::7].any()


SIZES = {"a.weight": (100, 96), "b.weight": (48,), "c.weight": (37, 130), "d.bias": (5,)}
"""Parameters that begin at odd places, and end in the middle of a block."""


LAYOUT = lay_out({name: Parameter(name, size) for name, size in SIZES.items()})


def _weights(dtype: torch.dtype, seed: int, own: Ownership | None = None) -> Weights:
    weights = Weights.empty(
        LAYOUT, dtype=dtype, main=torch.float32, device=torch.device("cuda"), own=own
    )
    torch.manual_seed(seed)
    weights.main.normal_()
    return weights


@every_type
def test_updates_are_those_of_pytorch(dtype: torch.dtype) -> None:
    fused, plain = _weights(dtype, 3), _weights(dtype, 3)
    ours, theirs = FusedAdamW(AdamW(), fused), TorchAdamW(AdamW(), plain)
    for step in range(5):
        for weights in (fused, plain):
            torch.manual_seed(step)
            weights.grad.normal_()
        for optimizer in (ours, theirs):
            optimizer.update(1e-2, 0.7)
        close(fused.main, plain.main.double(), 1e-6)
    assert torch.equal(fused.value, fused.main.to(dtype))
    for name in ours.moments:
        close(ours.moments[name], theirs.moments[name].double(), 1e-6)
    assert ours.steps == theirs.steps == 5


@every_type
@each("index", [0, 1, 2])
def test_updates_of_what_a_rank_owns_are_those_of_pytorch(dtype: torch.dtype, index: int) -> None:
    own = Ownership(LAYOUT, index, 3, apart=("a.weight",))
    fused, plain = _weights(dtype, 3, own), _weights(dtype, 3, own)
    before = fused.value.clone()
    ours, theirs = FusedAdamW(AdamW(), fused), TorchAdamW(AdamW(), plain)
    for step in range(3):
        for weights in (fused, plain):
            torch.manual_seed(step)
            weights.grad.normal_()
        for optimizer in (ours, theirs):
            optimizer.update(1e-2, 0.7)
        close(fused.main, plain.main.double(), 1e-6)
    for name in ours.moments:
        assert len(ours.moments[name]) == own.elements
        close(ours.moments[name], theirs.moments[name].double(), 1e-6)
    for run in own.runs:
        assert torch.equal(
            fused.owned_run(fused.value, run), fused.owned_run(fused.main, run).to(dtype)
        )
        fused.owned_run(before, run).copy_(fused.owned_run(fused.value, run))
    assert torch.equal(fused.value, before)  # what others own has not changed


@each("index", [0, 1, 2])
def test_squares_of_what_a_rank_owns(index: int) -> None:
    weights = _weights(torch.bfloat16, 0, Ownership(LAYOUT, index, 3))
    weights.grad.normal_()
    blocks = Blocks.of(weights.own.parts, weights.grad.device)
    parts = weights.owned(weights.grad).values()
    exact = torch.stack([part.double().square().sum() for part in parts])
    close(fused_squares(weights.grad, blocks), exact, 1e-14)


def test_squares_are_those_of_each_parameter_in_64_bits() -> None:
    weights = _weights(torch.bfloat16, 0)
    weights.grad.normal_()
    blocks = Blocks.of(weights.layout.parts, weights.grad.device)
    named = weights.named(weights.grad).values()
    exact = torch.stack([grad.double().square().sum() for grad in named])
    close(fused_squares(weights.grad, blocks), exact, 1e-14)


def _norm_gradient() -> Tensor:
    gradient = torch.zeros(2048, device="cuda")
    x, dy = numbers(5000, 2048), numbers(5000, 2048)
    weight = numbers(2048)
    norm.norm_backward(weight, gradient, x, norm.norm(weight, x, 1e-5)[1], dy)
    return gradient


def _embedding_gradient() -> Tensor:
    gradient = torch.zeros(100, 256, device="cuda")
    add_rows(gradient, torch.randint(100, (20_000,), device="cuda"), numbers(20_000, 256))
    return gradient


@each("rows", [(5, 0, 300, 1, 64), (512, 700, 130, 0, 1000)])
@each("sides", [(64, 96), (256, 512), (1536, 2048)])
def test_weight_gradients_of_experts(rows: tuple[int, ...], sides: tuple[int, int]) -> None:
    """Experts with any number of rows, of which some have none."""
    outputs, inputs = sides
    x, dy = (numbers(sum(rows), size, dtype=torch.bfloat16) for size in (inputs, outputs))
    ends = torch.tensor(rows, device="cuda").cumsum(0).int()
    before = numbers(len(rows) * outputs, inputs)
    gradient = before.clone()
    add_expert_gradients(gradient, x, dy, ends)
    exact, start = before.double().view(len(rows), outputs, inputs), 0
    for expert, end in enumerate(ends.tolist()):
        exact[expert] += dy[start:end].double().t() @ x[start:end].double()
        start = end
    close(gradient, exact.view(gradient.shape), BOUNDS[torch.float32])
    again = before.clone()
    add_expert_gradients(again, x, dy, ends)
    assert torch.equal(gradient, again)


@pytest.mark.parametrize("compute", [_norm_gradient, _embedding_gradient])
def test_a_sum_over_tokens_has_the_same_bits_again(compute: Callable[[], Tensor]) -> None:
    results = []
    for _ in range(5):
        torch.manual_seed(1)
        results.append(compute())
    assert all(torch.equal(results[0], other) for other in results[1:])


def test_other_lengths_build_no_other_kernels() -> None:
    """Slices have many lengths, and building a kernel takes seconds."""
    from triton import JITFunction

    from penstock.model.kernels import cross_entropy
    from penstock.model.kernels import norm as norm_kernels
    from penstock.model.kernels import rope as rope_kernels
    from penstock.model.kernels import swiglu as swiglu_kernels

    modules = (norm_kernels, swiglu_kernels, rope_kernels, cross_entropy)
    found = [value for module in modules for value in vars(module).values()]
    kernels = [value for value in found if isinstance(value, JITFunction)]

    def built() -> int:
        return sum(len(cache[0]) for kernel in kernels for cache in kernel.device_caches.values())

    _a_layer(1024)
    before = built()
    for tokens in (1000, 17, 3, 2, 4096, 1531):
        _a_layer(tokens)
    assert built() == before > 0


def _a_layer(tokens: int) -> None:
    """All kernels once, as a layer and the head use them."""
    x, weight = numbers(tokens, 256, dtype=torch.bfloat16), numbers(256, dtype=torch.bfloat16)
    y, r = norm.norm(weight, x, 1e-5)
    norm.norm_backward(weight, torch.zeros(256, device="cuda"), x, r, y, x)
    both = numbers(tokens, 512, dtype=torch.bfloat16)
    swiglu.swiglu_backward(both, swiglu.swiglu(both))
    heads = y.view(1, tokens, 4, 64)
    tables = numbers(tokens, 1, 64, dtype=torch.bfloat16)
    rope.rotate_into(heads, heads, tables, tables)
    head, labels = (
        numbers(1000, 256, dtype=torch.bfloat16),
        torch.zeros(tokens, device="cuda").long(),
    )
    lm_head.head_loss(matrix(head), y, labels)
    gradient = matrix(torch.zeros(1000, 256, device="cuda"))
    lm_head.head_loss_backward(matrix(head), gradient, y, labels, 0.5)
