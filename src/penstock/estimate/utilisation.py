"""FLOPs of a token, as utilisation counts them.

Papers differ in what they count. Here it is 6 N + 12 L a d s for each token, with N the elements of
all matrices that it meets, embedding and head among them (once where they are one), and all s x s
pairs of attention, also those that the mask hides (arXiv:2204.02311, appendix B). Weights that are
frozen have no gradient, and count 4. What is computed again counts for the hardware's utilisation
alone: 2 for each weight and 4 a d s of those layers, or the latter where it is attention alone.
"""

from fractions import Fraction

from penstock.arch.config import ModelConfig


def token_flops(model: ModelConfig, tokens: int) -> int:
    """FLOPs of a token of a sequence, forward and backward."""
    embeddings = 1 if model.tied else 2
    weights = model.met("layer_flops") // 2 + embeddings * model.head_weights
    trained = weights if model.trains_all else model.trained_parameters
    return 4 * weights + 2 * trained + 3 * model.flops_per_pair * tokens


def unmasked_flops(model: ModelConfig, tokens: int) -> float:
    """The same with the half of all pairs that a query sees."""
    return token_flops(model, tokens) - 3 * model.flops_per_pair * tokens / 2


def token_flops_again(model: ModelConfig, tokens: int, again: int | Fraction) -> int:
    """The same with so many layers computed again, on average over tokens; where layers differ, of
    the average."""
    layers = model.met("layer_flops") + model.flops_per_pair * tokens
    return token_flops(model, tokens) + again * layers // model.layers


def token_flops_beside_attention_again(model: ModelConfig, tokens: int) -> int:
    """The same with all layers computed again but for their attention."""
    return token_flops(model, tokens) + model.met("layer_flops")


def token_flops_attending_again(model: ModelConfig, tokens: int) -> int:
    """The same with the attention of all layers computed again, and nothing else."""
    return token_flops(model, tokens) + model.flops_per_pair * tokens
