"""What an op of a transformer needs only while it runs, on top of what is kept.

Memory is short at one moment of a step, and at that moment an op is running. Its own tensors, which
come and go within a layer, are a few percent of what is kept, and more where a device has few
layers. Per token, in elements (letters as in arch/config.py):

    forward of a layer        h                           its output, which the next device gets
    backward, MLP             3 f + h, and 3 h wide        gradients of the MLP, the norm's products
    backward, attention       2 f + 2 h + 3 a d + 4 g d    what waits for W, d(out), dQ dK dV, dQKV
    loss                      V of a chunk, wide           logits, twice in types of 16 bits

What is summed up, norms and logits, is in 32 bits at least ("wide").
"""

from penstock.arch.config import ModelConfig

LOGITS_AT_A_TIME = 1 << 26
"""Logits that the loss holds at a time, for the sake of memory."""


def wide_bytes(model: ModelConfig) -> int:
    return max(4, model.element_bytes)


def forward_bytes(model: ModelConfig) -> int:
    """Of one token in the forward of a layer."""
    return model.hidden * model.element_bytes


def backward_bytes(model: ModelConfig) -> int:
    """Of one token in the backward of a layer, at its highest."""
    queries, keys = model.heads * model.head_size, model.kv_heads * model.head_size
    mlp = (3 * model.ffn + model.hidden) * model.element_bytes
    mlp += 3 * model.hidden * wide_bytes(model)
    attention = 2 * model.ffn + 2 * model.hidden + 3 * queries + 4 * keys
    products = 3 * queries * wide_bytes(model) if model.qk_norm else 0  # of the queries' norm
    return max(mlp, attention * model.element_bytes + products)


def loss_bytes(model: ModelConfig, tokens: int) -> int:
    """Of a slice's logits in the forward or the backward of the loss."""
    logits = min(tokens * model.vocabulary, LOGITS_AT_A_TIME)
    narrow = model.element_bytes if model.element_bytes < wide_bytes(model) else 0
    return logits * (wide_bytes(model) + narrow)
