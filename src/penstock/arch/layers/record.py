"""What a kind of layer says of itself: one record, read by everybody who needs to know.

Stages allocate by a record's parameters, checkpoints and files are checked against them, initial
weights follow their `start`; the cost model multiplies its FLOPs and bytes by tokens and layers. So
a new kind of layer is a record here and its arithmetic in `model/layers`, and nothing else.

Counts are per token unless they say otherwise; a FLOP is one half of a multiply-add. The backward
is priced from the forward: an input gradient and a weight gradient each cost one forward in
products with weights, and an input gradient costs two in query-key pairs. Where weights are frozen
(adapted.py), a record says what its two gradients cost.
"""

from penstock.arch.layers.parameter import Parameter

LSE_BYTES = 4
"""The log-sum-exp of a softmax is kept in 32 bits, whatever the activations are in."""


def wide_bytes(element_bytes: int) -> int:
    """Bytes of what is summed up, norms and logits: 32 bits at least."""
    return max(4, element_bytes)


class LayerRecord:
    """A kind of layer with its sizes. What is not overridden follows from the parameters, or is
    nothing."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """In the order in which a forward meets them."""
        return ()

    @property
    def kind(self) -> "LayerRecord":
        """The kind of layer that it is, whether it is trained or frozen."""
        return self

    def refuse_running(self) -> None:
        """Refuse where `model/layers` has no arithmetic for it, so that it can only be
        estimated."""
        return

    @property
    def weights(self) -> int:
        """Elements of its matrices."""
        return sum(each.elements for each in self.parameters if len(each.shape) > 1)

    def weights_along(self, axis: int) -> int:
        """Elements of the matrices that tensor-parallel ranks share along an axis."""
        return sum(each.elements for each in self.parameters if each.axis == axis)

    @property
    def active_weights(self) -> int:
        """Elements of the matrices that one token meets: all, unless it chooses among them."""
        return self.weights

    @property
    def vectors(self) -> int:
        """Elements of its norms and biases."""
        return sum(each.elements for each in self.parameters if len(each.shape) == 1)

    @property
    def trained(self) -> int:
        """Elements that have gradients and are updated."""
        return sum(each.elements for each in self.parameters if each.trained)

    @property
    def flops_per_token(self) -> int:
        """Of a forward, in products with weights: 2 per weight that a token meets."""
        return 2 * self.active_weights

    @property
    def input_flops(self) -> int:
        """Of an input gradient, in products with weights."""
        return self.flops_per_token

    @property
    def weight_flops(self) -> int:
        """Of a weight gradient."""
        return self.flops_per_token

    @property
    def flops_per_pair(self) -> int:
        """Of a forward, for each pair of a query and a key."""
        return 0

    @property
    def kv_bytes(self) -> int:
        """Keys and values, which other slices of the sequence read too."""
        return 0

    @property
    def saved_bytes(self) -> int:
        """What a forward saves for the backward, keys and values apart."""
        return 0

    @property
    def sliced_bytes(self) -> int:
        """What a forward saves beyond that where its sequence is cut into slices."""
        return 0

    @property
    def stash_bytes(self) -> int:
        """What waits for the weight gradient: inputs of matrices, gradients of their outputs."""
        return 0

    @property
    def backward_bytes(self) -> int:
        """What the backward needs only while it runs."""
        return 0

    @property
    def fused_backward_bytes(self) -> int:
        """The same with the fused kernels of a GPU."""
        return self.backward_bytes

    @property
    def waiting_bytes(self) -> int:
        """What its backward leaves beyond what was saved, while those in front of it run."""
        return 0
