"""What a ring adds to attention: more kernels, and the joining of their results.

A rank meets the keys of its ring block by block. With its own block it computes two triangles and a
rectangle; of another block it sees half, with all its queries or with the later half of them, so
with three quarters of them on average. Results are joined in 32 bits, kernel by kernel
(model/attention/ring.py). Bytes of an element of 16 bits:

    forward     to 32 bits 6; joined with what is there 6 + 12; at the end to 16 bits 6
    backward    queries as in the forward; keys and values: zeros 2, added to 6, and 6 more where
                the gradients of other ranks come
"""

from penstock.arch.config import ModelConfig
from penstock.cluster.gpu import PassShares

OWN_KERNELS = 3
STORED, JOINED = 12, 18
"""Bytes of a query's element: the first result with the last change of type, and each other one."""
KEYS_OF_BLOCK = 2 + 6 * 3 / 4 + 6
"""Bytes of an element of keys and values, for each block."""


def ring_kernels(blocks: int) -> int:
    """Kernels of an attention whose keys are in so many blocks, one of each member of a ring."""
    return 1 if blocks == 1 else OWN_KERNELS + blocks - 1


def ring_moved(part: ModelConfig, tokens: int, blocks: int) -> PassShares:
    """Bytes that are moved to join the parts of a slice, of which a member has so many tokens."""
    if blocks == 1:
        return PassShares(0.0, 0.0)
    size, attention = part.element_bytes / 2, part.attention
    queries = (STORED + JOINED * (1 / 2 + (blocks - 1) * 3 / 4)) * attention.query_width
    keys = blocks * KEYS_OF_BLOCK * 2 * attention.key_width
    return PassShares(tokens * size * queries, tokens * size * (queries + keys))
