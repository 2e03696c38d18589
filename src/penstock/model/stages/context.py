"""What attention needs beside weights: how positions turn, and the memory of a sequence."""

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.model.attention.memory import KeyValues
from penstock.model.attention.piece import Piece
from penstock.model.attention.slice_attention import SliceOfLayer
from penstock.model.layers.rope import rope_tables
from penstock.model.layers.self_attention import SliceContext


class SequenceContext:
    """The surroundings of some layers' attention, for sequences up to a length."""

    def __init__(self, config: ModelConfig, layers: int, length: int, like: Tensor) -> None:
        """`like` has the type and the device of what is computed."""
        self.config, self.layers = config, layers
        self.dtype, self.device = like.dtype, like.device
        cos, sin = rope_tables(config, range(length), like.dtype, like.device)
        self.cos, self.sin = cos.unsqueeze(1), sin.unsqueeze(1)

    def memory(self, piece: Piece, kv: KeyValues | None) -> KeyValues | None:
        """The keys and values of the sequence, made with its first slice."""
        if piece.whole or kv is not None or not self.layers:
            return kv
        size = (self.layers, piece.rows, self.config.kv_heads, piece.length, self.config.head_size)
        return KeyValues(*size, dtype=self.dtype, device=self.device)

    def of_slice(self, at: SliceOfLayer, written: bool) -> SliceContext:
        """What a layer is told about a slice."""
        positions = slice(at.piece.start, at.piece.end)
        return SliceContext(at, self.cos[positions], self.sin[positions], written)
