"""A layer whose weights are frozen, some of its matrices with adapters (arch/lora.py).

It wraps the record of any kind of layer: what that keeps and attends to stays as it is. What
changes follows from the adapters, r (outputs + inputs) elements for each matrix that has one:

    F     one product more with each of A and B
    I     the same, and x A^T once more: it is not kept
    W     the products of A and B alone; nothing for what is frozen
    stash input and output gradient of products with an adapter, and what lies between A and B

Tensor-parallel ranks share an adapter as they share its matrix. Of a matrix that is split by
outputs, every rank has all of A, and its outputs of B; of one that is split by inputs its inputs of
A, and all of B. The part that all have gets its gradient as a sum over them, and no other message
is needed: products that are added up over ranks are linear in both.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from penstock.arch.layers.parameter import INPUTS, OUTPUTS, InitialValue, Parameter
from penstock.arch.layers.record import LayerRecord
from penstock.arch.lora import Lora, adapter_names


def with_adapters(record: LayerRecord, lora: Lora | None, element_bytes: int) -> LayerRecord:
    """The record of a layer as it is trained: itself where all of it is."""
    return record if lora is None else Adapted(record, lora, element_bytes)


@dataclass(frozen=True)
class Adapted(LayerRecord):
    """A layer of which only adapters are trained, where it has some."""

    base: LayerRecord
    lora: Lora
    element_bytes: int

    @property
    def kind(self) -> LayerRecord:
        return self.base

    def refuse_running(self) -> None:
        self.base.refuse_running()

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Frozen ones first, then all A and all B: those of matrices that have one input lie side
        by side. What is used behind attention follows what is used in front of it."""
        found: list[Parameter] = []
        for _, group in groupby(self._by_place(), key=lambda each: each[0]):
            frozen = [replace(each, trained=False) for _, each in group]
            pairs = [self._adapter(each) for each in frozen if self._has_adapter(each)]
            found += [*frozen, *(down for down, _ in pairs), *(up for _, up in pairs)]
        return tuple(found)

    def _by_place(self) -> list[tuple[bool, Parameter]]:
        """Whether each parameter is used behind the part of attention without weights."""
        behind, found = False, []
        for each in self.base.parameters:
            behind = behind or each.behind_attention
            found.append((behind, each))
        return found

    def _has_adapter(self, parameter: Parameter) -> bool:
        return len(parameter.shape) == 2 and self.lora.targets_matrix(parameter.name)

    def _adapter(self, matrix: Parameter) -> tuple[Parameter, Parameter]:
        """A and B of a matrix, each split with it where it has the axis that is split."""
        outputs, inputs = matrix.shape
        down, up = adapter_names(matrix.name.removesuffix(".weight"))
        split, shared = matrix.axis, "shares" if matrix.axis is not None else matrix.adds_over
        of_inputs, of_outputs = split == INPUTS, split == OUTPUTS
        return (
            replace(
                matrix,
                name=down,
                shape=(self.lora.rank, inputs),
                start=InitialValue.UNIFORM,
                axis=INPUTS if of_inputs else None,
                heads=matrix.heads if of_inputs else None,
                adds_over=matrix.adds_over if of_inputs else shared,
                trained=True,
            ),
            replace(
                matrix,
                name=up,
                shape=(outputs, self.lora.rank),
                start=InitialValue.ZEROS,
                axis=OUTPUTS if of_outputs else None,
                heads=matrix.heads if of_outputs else None,
                adds_over=matrix.adds_over if of_outputs else shared,
                trained=True,
            ),
        )

    def weights_along(self, axis: int) -> int:
        """Of the matrices themselves: adapters start no messages of their own."""
        return self.base.weights_along(axis)

    @property
    def active_weights(self) -> int:
        """What a token meets of the matrices, and all adapters."""
        return self.base.active_weights + self.trained

    @property
    def adapters(self) -> tuple[Parameter, ...]:
        return tuple(each for each in self.parameters if each.trained)

    @property
    def input_flops(self) -> int:
        """2 for each weight and each element of an adapter, and x A^T once more."""
        again = sum(each.elements for each in self.adapters if each.start is InitialValue.UNIFORM)
        return self.flops_per_token + 2 * again

    @property
    def weight_flops(self) -> int:
        """2 for each element of an adapter."""
        return 2 * self.trained

    @property
    def flops_per_pair(self) -> int:
        return self.base.flops_per_pair

    @property
    def kv_bytes(self) -> int:
        return self.base.kv_bytes

    @property
    def saved_bytes(self) -> int:
        return self.base.saved_bytes

    @property
    def sliced_bytes(self) -> int:
        return self.base.sliced_bytes

    @property
    def stash_bytes(self) -> int:
        """For products with an adapter: their input and the gradient of their output, and for each
        adapter twice the rank. Matrices that have one input are one product."""
        elements = 0
        for axis in (OUTPUTS, INPUTS):
            if product := self._product(axis):
                elements += product[0].shape[1] + sum(each.shape[0] for each in product)
        return elements * self.element_bytes + self._between_bytes

    def _product(self, axis: int) -> list[Parameter]:
        """Matrices that are multiplied by at once and split along an axis; none where no adapter
        needs their input."""
        matrices = [each for each in self.base.parameters if each.axis == axis]
        found = [each for each in matrices if len(each.shape) == 2]
        return found if any(map(self._has_adapter, found)) else []

    @property
    def _between_bytes(self) -> int:
        """What lies between A and B of all adapters, and its gradient."""
        count = sum(map(self._has_adapter, self.base.parameters))
        return 2 * self.lora.rank * count * self.element_bytes

    @property
    def backward_bytes(self) -> int:
        """Gradients that wait for nothing are gone before the norm in front is passed."""
        inside = self.base.backward_bytes
        if not self._product(OUTPUTS) and self.base.waiting_bytes:
            inside = max(self.base.fused_backward_bytes, inside - self.base.waiting_bytes)
        return inside + self._between_bytes

    @property
    def fused_backward_bytes(self) -> int:
        return self.base.fused_backward_bytes + self._between_bytes

    @property
    def waiting_bytes(self) -> int:
        waiting = self.base.waiting_bytes if self._product(OUTPUTS) else 0
        return waiting + self._between_bytes
