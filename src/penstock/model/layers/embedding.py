"""The embedding: a row of a matrix for each token."""

from torch import Tensor


def embed(weight: Tensor, tokens: Tensor) -> Tensor:
    """[rows, tokens] -> [rows x tokens, hidden]"""
    return weight[tokens.flatten()]


def embed_backward(gradient: Tensor, tokens: Tensor, dx: Tensor) -> None:
    """Add the gradient of each token's vector to its row."""
    gradient.index_add_(0, tokens.flatten(), dx.to(gradient.dtype))
