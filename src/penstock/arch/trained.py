"""What of a model is trained, and what its two gradients cost: all of it, or adapters alone."""

from functools import cached_property

from penstock.arch.layers.adapted import with_adapters
from penstock.arch.layers.record import LayerRecord
from penstock.arch.lora import Lora
from penstock.arch.record_sums import RecordSums


class TrainedSums(RecordSums):
    """A model that has records; its numbers are those of `ModelConfig`."""

    lora: Lora | None

    def as_trained(self, *records: LayerRecord) -> tuple[LayerRecord, ...]:
        """Records of layers as they are trained."""
        return tuple(with_adapters(each, self.lora, self.element_bytes) for each in records)

    @property
    def input_records(self) -> tuple[LayerRecord, ...]:
        """What stands in front of the first layer."""
        return self.as_trained(self.embedding)

    @property
    def output_records(self) -> tuple[LayerRecord, ...]:
        """What follows the last layer."""
        return self.as_trained(self.last_norm, self.head)

    @property
    def trains_all(self) -> bool:
        """Whether every weight is trained, embedding and head among them."""
        return self.lora is None

    @cached_property
    def head_adapters(self) -> int:
        """Elements of the adapters of the head; none where it has none, or is trained itself."""
        return sum(record.trained for record in self.output_records) * (not self.trains_all)

    @cached_property
    def head_adapter_flops(self) -> int:
        """FLOPs of one token in the adapters of the head: 2 for each element in the product, in the
        gradient of the input and in their own, and x A^T once more."""
        down = self.lora.rank * self.hidden if self.lora and self.head_adapters else 0
        return 6 * self.head_adapters + 2 * down

    def head_adapter_bytes(self, tokens: int) -> int:
        """Of a slice in the loss: the gradient of the input, which cannot be written over the input
        while adapters need that, and what lies between A and B with its gradient."""
        if self.lora is None or not self.head_adapters:
            return 0
        elements = self.hidden + 2 * self.lora.rank
        return self.head.tokens_held(tokens) * elements * self.element_bytes

    @property
    def adapter_scale(self) -> float:
        """What products of adapters are multiplied by."""
        return 1.0 if self.lora is None else self.lora.scale

    @cached_property
    def layer_trained(self) -> int:
        """Elements of one layer that are trained."""
        return sum(record.trained for record in self.layer_records)

    @cached_property
    def layer_frozen(self) -> int:
        """Elements of one layer that are not."""
        every = sum(record.weights + record.vectors for record in self.layer_records)
        return every - self.layer_trained

    @property
    def trained_parameters(self) -> int:
        """Elements of the whole model that are trained; embedding and head that are tied are one.

        >>> from penstock.arch.presets import MODELS
        >>> MODELS["tiny"].trained_parameters == MODELS["tiny"].parameters
        True
        """
        ends = sum(record.trained for record in (*self.input_records, *self.output_records))
        twice = self.head.weights if self.tied and self.trains_all else 0
        between = self.bracket_vectors(range(self.layers))
        return self.total("layer_trained") + between + ends - twice

    @cached_property
    def step_flops_per_token(self) -> int:
        """FLOPs of one token of a training step in all weights, head included: forward, input
        gradient, and weight gradients of what is trained. Nothing is computed twice."""
        layers = 2 * self.met("layer_flops") + self.met("layer_weight_flops")
        head = (2 + self.trains_all) * self.head.flops_per_token
        return layers + head + 6 * self.head_adapters

    @cached_property
    def layer_input_flops(self) -> int:
        """FLOPs of one token's input gradient in the weights of one layer."""
        return sum(record.input_flops for record in self.layer_records)

    @cached_property
    def layer_weight_flops(self) -> int:
        """FLOPs of one token's weight gradients in one layer."""
        return sum(record.weight_flops for record in self.layer_records)
