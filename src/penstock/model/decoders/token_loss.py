"""The loss of a language model: the mean over all tokens that count.

Two functions, because a batch comes in microbatches, and slices, of unequal weight: the mean of one
of them, and how many tokens it is a mean of.
"""

from torch import Tensor
from torch.nn import functional

from penstock.data.batch import IGNORE


def token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross entropy of logits [rows, tokens, words] and the word that follows each token,
    [rows, tokens]; -100 where none counts. An auxiliary loss of experts is not in it."""
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE)


def token_count(labels: Tensor) -> float:
    """How many of the labels count."""
    return float((labels != IGNORE).sum())
