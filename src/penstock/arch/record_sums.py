"""What the records of a model add up to: parameters, FLOPs and bytes, per token and per layer.

Whoever needs more than a sum walks `layer_records`.
"""

from collections.abc import Iterable
from fractions import Fraction
from functools import cached_property
from typing import Protocol

from penstock.arch.layers.embedding import Embedding
from penstock.arch.layers.lm_head import LmHead
from penstock.arch.layers.norm import Norm
from penstock.arch.layers.record import LayerRecord
from penstock.arch.subsampling import Subsampling


class RecordSums(Protocol):
    """A model that has records; its numbers are those of `ModelConfig`."""

    layers: int
    hidden: int
    element_bytes: int
    tied: bool
    subsampling: Subsampling | None

    def opening_records(self, layer: int) -> tuple[LayerRecord, ...]:
        """Scorers of the brackets that open in front of a layer."""
        ...

    def closing_records(self, layer: int) -> tuple[LayerRecord, ...]:
        """Bypasses of the brackets that close behind a layer."""
        ...

    @property
    def layer_records(self) -> tuple[LayerRecord, ...]:
        """The records of one layer, in the order in which a forward meets them."""
        ...

    def attending(self, layers: Iterable[int]) -> list[int]:
        """Those of some layers that have attention."""
        ...

    def total(self, name: str) -> int:
        """The sum over all layers of something that a layer has."""
        ...

    @property
    def embedding(self) -> Embedding: ...

    @property
    def last_norm(self) -> Norm: ...

    @property
    def head(self) -> LmHead: ...

    @property
    def head_adapters(self) -> int:
        """Elements of the adapters of the head."""
        ...

    @property
    def output_records(self) -> tuple[LayerRecord, ...]:
        """What follows the last layer."""
        return (self.last_norm, self.head)

    @cached_property
    def layer_weights(self) -> int:
        """Elements of one layer's matrices."""
        return sum(record.weights for record in self.layer_records)

    @cached_property
    def layer_vectors(self) -> int:
        """Elements of one layer's norms and biases."""
        return sum(record.vectors for record in self.layer_records)

    @property
    def parameters(self) -> int:
        """Elements of the whole model: layers with their vectors, a last norm, embeddings."""
        embeddings = 1 if self.tied else 2
        layers = self.total("layer_weights") + self.total("layer_vectors")
        ends = self.last_norm.vectors + embeddings * self.head_weights + self.head_adapters
        return layers + self.bracket_vectors(range(self.layers)) + ends

    def bracket_vectors(self, layers: range) -> int:
        """Elements of scorers and bypasses in front of some layers and behind them."""
        both = (self.opening_records, self.closing_records)
        return sum(each.vectors for of in both for layer in layers for each in of(layer))

    @property
    def active_parameters(self) -> int:
        """Of these, what one token meets: all, unless it chooses among experts."""
        return self.parameters - self.total("layer_weights") + self.total("layer_active")

    @cached_property
    def layer_active(self) -> int:
        """Elements of one layer's matrices that one token meets."""
        return sum(record.active_weights for record in self.layer_records)

    @cached_property
    def head_weights(self) -> int:
        """Elements of the output layer, h V."""
        return self.head.weights

    @cached_property
    def layer_flops(self) -> int:
        """Forward FLOPs of one token in the weights of one layer."""
        return sum(record.flops_per_token for record in self.layer_records)

    def layers_met(self, power: int = 1) -> Fraction:
        """Layers that a token goes through, or a pair of tokens (2): all, unless some are left
        out."""
        if self.subsampling is None:
            return Fraction(len(self.attending(range(self.layers))) if power == 2 else self.layers)
        return self.subsampling.layers_met(power)

    def met(self, name: str, power: int = 1) -> int:
        """The sum over the layers that a token goes through, or a pair of tokens (2)."""
        if self.subsampling is None:
            return self.total(name)
        each: int = getattr(self, name)
        return round(self.subsampling.layers_met(power) * each)

    @property
    def flops_per_token(self) -> int:
        """Forward FLOPs of one token in all weights that it meets, head included."""
        return self.met("layer_flops") + self.head.flops_per_token

    @cached_property
    def pair_flops(self) -> int:
        """Forward FLOPs of one query-key pair in one layer."""
        return sum(record.flops_per_pair for record in self.layer_records)

    @property
    def flops_per_pair(self) -> int:
        """Forward FLOPs of one query-key pair in all layers, where both are there."""
        return self.met("pair_flops", 2)

    @property
    def boundary_bytes(self) -> int:
        """Bytes of one token between two stages: h elements."""
        return self.hidden * self.element_bytes

    @cached_property
    def kv_bytes(self) -> int:
        """Bytes of one token's keys and values in one layer."""
        return sum(record.kv_bytes for record in self.layer_records)

    @cached_property
    def saved_bytes(self) -> int:
        """Bytes that one token's forward saves in one layer, keys and values apart."""
        return sum(record.saved_bytes for record in self.layer_records)

    @cached_property
    def sliced_bytes(self) -> int:
        """Bytes that it saves beyond that where the sequence is cut into slices."""
        return sum(record.sliced_bytes for record in self.layer_records)

    @cached_property
    def stash_bytes(self) -> int:
        """Bytes that one token's weight gradient waits for in one layer."""
        return sum(record.stash_bytes for record in self.layer_records)
