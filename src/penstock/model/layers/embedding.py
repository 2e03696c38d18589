"""The embedding: a row of a matrix for each token."""

from torch import Tensor


def embed(weight: Tensor, tokens: Tensor) -> Tensor:
    """[rows, tokens] -> [rows x tokens, hidden]"""
    return weight[tokens.flatten()]


def embed_backward(gradient: Tensor, tokens: Tensor, dx: Tensor) -> None:
    """Add the gradient of each token's vector to its row, always in the same order."""
    if gradient.is_cuda:  # where `index_add_` adds in the order in which threads come
        gradient.index_put_((tokens.flatten(),), dx.to(gradient.dtype), accumulate=True)
    else:
        gradient.index_add_(0, tokens.flatten(), dx.to(gradient.dtype))
