"""Where the time of a step goes, from made-up lists of kernels and events."""

import pytest

from penstock.bench.measure.kernel_classes import (
    LABELS,
    OTHER,
    GpuKernel,
    breakdown_of,
    busy_seconds,
    class_of,
)

NAMES = {
    "products": (
        "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NNT",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16>(Params)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasSplitKParams)",
    ),
    "attention": (
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_6x128x128",
        "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Traits>(Params)",
        "fmha_cutlassB_bf16_aligned_64x64_k64_sm80(Params)",
    ),
    "norms": (
        "_norm_forward",
        "_norm_backward",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, sum_functor>>(T)",
    ),
    "gate": ("_swiglu_forward", "_swiglu_backward"),
    "rotation": ("_turn",),
    "head loss": ("_loss_lse", "_loss_gradient"),
    "embedding": (
        "void at::native::index_elementwise_kernel<128, 4, gpu_index_kernel>(long)",
        "void at::native::indexing_backward_kernel<float, 4>(long const*)",
        "void cub::DeviceRadixSortOnesweepKernel<Policy>(int*)",
    ),
    "copies and fills": (
        "Memcpy HtoD (Pinned -> Device)",
        "Memset (Device)",
        "void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda>(int)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)",
    ),
    OTHER: ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>(int)",),
}


def kernel(name: str, start: float = 0.0, seconds: float = 1.0, op: str = "0F0.0") -> GpuKernel:
    return GpuKernel(name, op, start, seconds)


def test_names_of_kernels_say_their_class() -> None:
    found = {label: {class_of(kernel(name)) for name in names} for label, names in NAMES.items()}
    assert found == {label: {label} for label in NAMES}


def test_all_that_the_end_of_a_step_launches_is_the_optimizer() -> None:
    names = [name for names in NAMES.values() for name in names]
    for op in ("0V0", "12U0", "0Z0"):
        assert {class_of(kernel(name, op=op)) for name in names} == {"optimizer"}
    assert "optimizer" not in {class_of(kernel(name, op="")) for name in names}


def test_every_class_has_a_name_of_a_kernel() -> None:
    assert {*NAMES, "optimizer"} == set(LABELS)


def test_seconds_add_up_by_class_and_unknown_kernels_are_listed() -> None:
    kernels = [
        kernel("nvjet_a", 0.0, 2.0),
        kernel("nvjet_b", 2.0, 1.0),
        kernel("_turn", 3.0, 0.5),
        kernel("mystery", 4.0, 0.25),
        kernel("riddle", 5.0, 0.5),
        kernel("mystery", 6.0, 0.5),
    ]
    found = breakdown_of(kernels, 8.0)
    times = {label: seconds for label, seconds in found["classes"].items() if seconds}
    assert times == {"products": 3.0, "rotation": 0.5, OTHER: 1.25}
    assert list(found["unknown"].items()) == [("mystery", 0.75), ("riddle", 0.5)]
    assert found["idle"] == pytest.approx(8.0 - 4.75)
    assert found["kernels"] == 6


def test_kernels_side_by_side_are_busy_once() -> None:
    kernels = [kernel("a", 0.0, 4.0), kernel("b", 1.0, 1.0), kernel("c", 3.0, 2.0)]
    assert busy_seconds(kernels) == 5.0
    assert busy_seconds([*kernels, kernel("d", 7.0, 1.0)]) == 6.0
    assert busy_seconds([]) == 0.0


def test_gaps_are_those_between_kernels_of_one_op() -> None:
    """The 40 us between two ops and those around what belongs to no op do not count."""
    us = 1e-6
    kernels = [
        kernel("a", 0 * us, 10 * us, "0F0.0"),
        kernel("b", 15 * us, 10 * us, "0F0.0"),
        kernel("c", 55 * us, 10 * us, "0F0.0"),
        kernel("d", 105 * us, 10 * us, "0B0.0"),
        kernel("e", 140 * us, 10 * us, "0B0.0"),
        kernel("f", 900 * us, 10 * us, ""),
        kernel("g", 990 * us, 10 * us, ""),
    ]
    found = breakdown_of(kernels, 1000 * us)
    assert found["long_gaps"] == 2
    assert found["largest_gap"] == pytest.approx(30 * us)
    assert found["largest_gap_in"] == "0F0.0"


def test_a_step_without_kernels_is_all_idle() -> None:
    found = breakdown_of([], 2.0)
    assert (found["idle"], found["largest_gap"], found["long_gaps"]) == (2.0, 0.0, 0)
