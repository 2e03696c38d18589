"""The private ops still take what is passed to them."""

import pytest
import torch

from penstock.model.attention import aten
from penstock.model.attention.aten import cumulative_lengths
from penstock.model.attention.reach import Reach

pytestmark = pytest.mark.torch

PASSED = {
    "_scaled_dot_product_flash_attention_for_cpu": (
        "Tensor query, Tensor key, Tensor value, float dropout_p=0., bool is_causal=False",
        "Tensor output, Tensor logsumexp",
    ),
    "_scaled_dot_product_flash_attention_for_cpu_backward": (
        "Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, "
        "float dropout_p, bool is_causal",
        "Tensor grad_query, Tensor grad_key, Tensor grad_value",
    ),
    "_scaled_dot_product_cudnn_attention": (
        "Tensor query, Tensor key, Tensor value, Tensor? attn_bias, bool compute_log_sumexp, "
        "float dropout_p=0., bool is_causal=False",
        "Tensor output, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, "
        "SymInt max_k, Tensor philox_seed, Tensor philox_offset, Tensor debug_attn_mask",
    ),
    "_scaled_dot_product_cudnn_attention_backward": (
        "Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, "
        "Tensor philox_seed, Tensor philox_offset, Tensor attn_bias, Tensor cum_seq_q, "
        "Tensor cum_seq_k, SymInt max_q, SymInt max_k, float dropout_p, bool is_causal",
        "Tensor, Tensor, Tensor",
    ),
    "_flash_attention_forward": (
        "Tensor query, Tensor key, Tensor value, Tensor? cum_seq_q, Tensor? cum_seq_k, "
        "SymInt max_q, SymInt max_k, float dropout_p, bool is_causal, bool return_debug_mask",
        "Tensor output, Tensor softmax_logsumexp, Tensor rng_state, Tensor unused, "
        "Tensor debug_attn_mask",
    ),
    "_flash_attention_backward": (
        "Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, "
        "Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, float dropout_p, "
        "bool is_causal, Tensor rng_state, Tensor unused",
        "Tensor, Tensor, Tensor",
    ),
}
"""Arguments given by position, and results; what is optional behind them may grow."""


@pytest.mark.parametrize("name", PASSED)
def test_an_op_has_the_arguments_and_results_that_are_relied_on(name: str) -> None:
    schema = str(getattr(torch.ops.aten, name).default._schema)
    arguments, results = PASSED[name]
    assert schema.startswith(f"aten::{name}({arguments}")
    assert schema.endswith(f"-> ({results})")
    assert all("=" in more or "?" in more for more in _further(schema, arguments))


def test_flash_knows_windows_by_the_name_that_is_passed() -> None:
    for name in ("_flash_attention_forward", "_flash_attention_backward"):
        assert "SymInt? window_size_left=None" in str(getattr(torch.ops.aten, name).default._schema)
    reach = Reach(15, (64,), window=16)
    q, k = meta(64, 8, 32), meta(79, 4, 32)
    out, lse = aten.flash_forward(q, k, k, reach)
    gradients = aten.flash_backward(out, q, k, k, (out, lse), reach)
    assert [gradient.shape for gradient in gradients] == [q.shape, k.shape, k.shape]


def _further(schema: str, arguments: str) -> list[str]:
    """Arguments behind those that are passed."""
    inside = schema.split("(", 1)[1].rsplit(") ->", 1)[0]
    further = inside.removeprefix(arguments).replace("*", "").split(",")
    return [argument.strip() for argument in further if argument.strip()]


def test_documents_are_counted_among_queries_and_keys() -> None:
    queries, keys = cumulative_lengths(Reach(5, (3, 2, 4)), torch.device("cpu"))
    assert queries.tolist() == [0, 3, 5, 9]
    assert keys.tolist() == [0, 8, 10, 14]
    assert queries.dtype is torch.int32


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device="meta")


def test_cudnn_takes_a_past_longer_than_the_slice() -> None:
    """Without a GPU the op only works out shapes, from the same arguments."""
    q, k = meta(2, 8, 64, 32), meta(2, 4, 192, 32)
    out, lse = aten.cudnn_forward(q, k, k, False)
    assert out.shape == q.shape
    assert lse.shape[:3] == (2, 8, 64)
    gradients = aten.cudnn_backward(out, q, k, k, (out, lse), False)
    assert [gradient.shape for gradient in gradients] == [q.shape, k.shape, k.shape]


def test_flash_takes_documents_with_a_past() -> None:
    reach = Reach(100, (20, 44))
    q, k = meta(64, 8, 32), meta(164, 4, 32)
    out, lse = aten.flash_forward(q, k, k, reach)
    assert out.shape == q.shape
    gradients = aten.flash_backward(out, q, k, k, (out, lse), reach)
    assert [gradient.shape for gradient in gradients] == [q.shape, k.shape, k.shape]
