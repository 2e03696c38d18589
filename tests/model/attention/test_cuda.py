"""The kernels of a GPU against the definition, and against PyTorch's own attention in time."""

from collections.abc import Callable
from dataclasses import replace
from statistics import median

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from loops import each
from model.attention.dense import Case, Sliced, error
from model.attention.ring_ranks import ring_errors, ring_of
from penstock.arch.attention_rule import AttentionRule
from penstock.arch.presets import model
from penstock.bench.measure.gpu import first_gpu, our_row
from penstock.bench.measure.gpu_case import GpuCase
from penstock.model.attention import flash4
from penstock.model.attention.table import back_end_for, parts_back_end_for

pytestmark = [
    pytest.mark.torch,
    pytest.mark.processes,  # FlashAttention 4 looks for libraries when it is loaded,
    pytest.mark.filterwarnings("ignore"),  # and warns of its own code when it builds kernels
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

ROUNDINGS = 8 * 2**-9
"""Some roundings of bfloat16: of the weights, of the output, of two in a merge."""

LOW = Case((256, 320), heads=4, kv_heads=2, size=64, dtype=torch.bfloat16, device="cuda")
LONG = Case((32768,), heads=32, kv_heads=32, size=128, dtype=torch.bfloat16, device="cuda")

PACKED = {
    "documents": ((0, 100, 300, 301),),
    "a document at the slice's start": ((0, 256),),
    "rows with different documents": ((0,), (0, 256), (0, 1, 575)),
    "rows with the same documents": ((0, 300), (0, 300)),
}


def chosen(case: Case) -> list[str]:
    q, rule = case.inputs()[0], AttentionRule(case.window)
    return [back_end_for(q, piece, rule).name for piece in case.pieces()]


@pytest.fixture
def without_flash4(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back ends as they are where the package is not installed."""
    monkeypatch.setattr(flash4, "has_flash4", lambda: False)


with_flash4 = pytest.mark.skipif(not flash4.has_flash4(), reason="needs flash-attn-4")


@with_flash4
@each("kv_heads", [1, 2, 4])
@each("lengths", [(576,), (256, 320), (64, 129, 383), (3, 59, 1, 512), (1000, 1, 3095)])
@each("size", [64, 128])
def test_flash4_serves_sequences_of_one_document(
    kv_heads: int, lengths: tuple[int, ...], size: int
) -> None:
    documents = ((0,), (0,))
    case = replace(LOW, lengths=lengths, kv_heads=kv_heads, documents=documents, size=size)
    assert set(chosen(case)) == {"flash4"}
    assert error(case) <= ROUNDINGS


@with_flash4
@each("documents", PACKED.values(), ids=PACKED.keys())
@each("lengths", [(576,), (256, 320), (256, 1, 319)])
def test_flash4_serves_documents(
    documents: tuple[tuple[int, ...], ...], lengths: tuple[int, ...]
) -> None:
    case = replace(LOW, lengths=lengths, documents=documents)
    packed = any(len(starts) > 1 for starts in documents)
    assert set(chosen(case)) == {"flash4-documents" if packed else "flash4"}
    assert error(case) <= ROUNDINGS


@with_flash4
def test_flash4_gives_the_same_bits_where_it_is_told_to() -> None:
    case = replace(LOW, lengths=(2048, 2048), size=128)
    torch.use_deterministic_algorithms(True)
    try:
        once, again = Sliced(case).gradients(), Sliced(case).gradients()
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(map(torch.equal, once, again))


@with_flash4
def test_lengths_of_slices_build_no_further_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    error(replace(LOW, lengths=(512, 512)))
    from flash_attn.cute import interface

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a kernel is built")

    monkeypatch.setattr(interface.cute, "compile", refused)
    assert error(replace(LOW, lengths=(512, 700, 131, 1000))) <= ROUNDINGS


@pytest.mark.usefixtures("without_flash4")
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("lengths", [(576,), (256, 320), (64, 129, 383)])
def test_cudnn_serves_sequences_of_one_document(kv_heads: int, lengths: tuple[int, ...]) -> None:
    case = replace(LOW, lengths=lengths, kv_heads=kv_heads, documents=((0,), (0,)))
    assert set(chosen(case)) == {"cudnn"}
    assert error(case) <= ROUNDINGS


@pytest.mark.usefixtures("without_flash4")
@each("documents", PACKED.values(), ids=PACKED.keys())
@each("lengths", [(576,), (256, 320), (256, 1, 319)])
def test_flash_serves_documents(
    documents: tuple[tuple[int, ...], ...], lengths: tuple[int, ...]
) -> None:
    case = replace(LOW, lengths=lengths, documents=documents)
    assert set(chosen(case)) == {"flash"}
    assert error(case) <= ROUNDINGS


@pytest.mark.usefixtures("without_flash4")
@each("documents", [((0,), (0,)), ((0, 100, 300, 301),)])
@each("window", [1, 64, 200])
@each("size", [64, 128, 256])
def test_flash_serves_windows(
    documents: tuple[tuple[int, ...], ...], window: int, size: int
) -> None:
    for lengths in ((576,), (256, 320), (256, 1, 319)):
        case = replace(LOW, lengths=lengths, documents=documents, size=size, window=window)
        assert set(chosen(case)) == {"flash"}
        assert error(case) <= ROUNDINGS


@pytest.mark.usefixtures("without_flash4")
def test_long_windows_are_triangles_of_a_faster_kernel() -> None:
    case = replace(LOW, lengths=(4096, 4096), window=4096)
    assert set(chosen(case)) == {"cudnn"}
    assert error(case) <= ROUNDINGS
    assert set(chosen(replace(case, size=256))) == {"flash"}


@pytest.mark.usefixtures("without_flash4")
def test_flash_serves_slices_that_are_short() -> None:
    case = replace(LOW, lengths=(3, 59, 1, 512))
    assert chosen(case) == ["flash", "flash", "flash", "flash"]
    assert error(case) <= ROUNDINGS


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_full_precision_is_computed_plainly(dtype: torch.dtype, limit: float) -> None:
    case = replace(LOW, dtype=dtype, documents=((0, 100, 300, 301), (0,)))
    assert set(chosen(case)) == {"plain"}
    assert error(case) <= limit


@with_flash4
@each("ranks", [2, 3])
@each("lengths", [(768,), (384, 500)])
def test_a_ring_gives_its_parts_to_flash4(lengths: tuple[int, ...], ranks: int) -> None:
    case = replace(LOW, lengths=lengths)
    assert parts_back_end_for(case.inputs()[0], case.pieces()[-1]).name == "flash4-parts"
    assert max(ring_errors(case, ring_of(case, ranks))) <= 2 * ROUNDINGS


@pytest.mark.usefixtures("without_flash4")
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(
    ("name", "lengths", "documents"),
    [
        ("cudnn", (768,), ((0,), (0,))),
        ("cudnn", (384, 500), ((0,),)),
        ("plain", (384, 500), ((0, 100, 300, 301), (0,))),
        ("plain", (3, 59, 1, 512), ((0,),)),
    ],
)
def test_a_ring_gives_its_parts_to_a_kernel_that_knows_them(
    name: str, lengths: tuple[int, ...], documents: tuple[tuple[int, ...], ...], ranks: int
) -> None:
    """Each rank rounds the gradients of keys and values once more."""
    case = replace(LOW, lengths=lengths, documents=documents)
    chunk = case.pieces()[-1]._replace(start=0, end=min(lengths) // (2 * ranks))
    assert parts_back_end_for(case.inputs()[0], chunk).name == name
    assert max(ring_errors(case, ring_of(case, ranks))) <= 2 * ROUNDINGS


def times(call: Callable[[], object], rounds: int = 7) -> float:
    """Milliseconds, the middle of some rounds after one to warm up."""
    found = []
    for _ in range(rounds + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end))
    return median(found[1:])


def both_ways(case: Case) -> float:
    sliced = Sliced(case)

    def step() -> None:
        sliced.saved = [sliced.forward(piece) for piece in sliced.pieces]
        sliced.gradients()

    return times(step)


def fastest_of_pytorch(case: Case) -> float:
    *tensors, g = case.inputs()
    q, k, v = (tensor.requires_grad_() for tensor in tensors)

    def step() -> tuple[Tensor, ...]:
        out = scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.autograd.grad(out, (q, k, v), g)

    found = []
    for kernel in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(kernel):
            found.append(times(step))
    return min(found)


def test_the_whole_sequence_takes_no_longer_than_with_pytorch() -> None:
    assert both_ways(LONG) <= 1.02 * fastest_of_pytorch(LONG)


def _case(schedule: str, slices: int) -> GpuCase:
    name = "llama3.2-1b"
    return GpuCase(name, model(name), tokens=32768, schedule=schedule, slices=slices)


def test_four_slices_cost_a_step_at_most_a_twentieth() -> None:
    whole, sliced = (
        our_row(_case(schedule, slices), first_gpu(), 2, 1)["seconds"]
        for schedule, slices in (("1f1b", 1), ("seq1f1b", 4))
    )
    assert sliced <= 1.05 * whole
