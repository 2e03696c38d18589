"""The kernels of a layer by name: what is multiplied, and what only moves bytes.

Where layers are cut, their kernels run on several stages, so that each has to be known by itself.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from penstock.arch.config import ModelConfig
from penstock.arch.layers.attention import PROJECTION
from penstock.arch.layers.gated_mlp import GELU_TANH, SILU
from penstock.arch.layers.norm import Norm
from penstock.arch.layers.parameter import INPUTS, OUTPUTS, Parameter
from penstock.arch.layers.record import wide_bytes
from penstock.arch.lora import UP
from penstock.cluster.measured import EXPERT_ROWS, PRODUCT_PASSES
from penstock.estimate.layer_seconds import UnitTokens
from penstock.estimate.plain_kernels import PROJECTION_NORM

PRODUCT = "product "
"""What names of products begin with."""
HEAD_NORMS = "norms of heads"
"""Norms of queries and keys; backward, gradients are copied to where they were."""
HEADS_EXCHANGED = "exchanged heads"
EXCHANGE_MOVED = ((10, 12), (12, 16))
"""Elements that are read and written around exchanges, for each of a token's queries and for each
of its keys, forward and backward (model/attention/ulysses.py). What goes to a rank is put together,
then what goes to all ranks (run/comm/cell_group.py), then what came from them: 6 of queries, keys
and values each. The output is together already: 4, and 6 of its gradient. Gradients of queries,
keys and values are put together twice, 4; those of queries are copied to their places 2, those of
keys and values added to zeros 4."""
EXCHANGE_STARTS = 12
"""Kernels of these in a pass. Assumption: more ranks need more."""
GATE_MOVED = {SILU: (3, 5), GELU_TANH: (5, 11)}
"""Elements that a gate reads and writes for each of the MLP, forward and backward. With GELU it is
two and four kernels of PyTorch."""
ROUTING_STARTS = 40
"""Kernels that choose experts, sort rows by them, take rows of tokens and add them up again."""


class RoutedBytes(NamedTuple):
    """What experts cost beside their products, as bytes that a fused kernel moves in the time of
    those of PyTorch. Measured on an H200, forward and backward: 0.71 and 0.94 ms with 8,192 tokens
    of qwen3-30b-a3b, 2.44 and 3.54 ms with 32,768. That it is as much on other GPUs is an
    assumption."""

    rows: float
    """Elements outside the MLP for each row: taken from its token, 2 and backward 4, put in the
    order of choices 2, added up 1.2."""
    tokens: float
    """The same for each token, where sums go."""
    inside: float
    """Elements inside the MLP for each of a row: weighed; backward, gradients of what rows weigh.
    A multiplication with a number for each row takes as long as moving 4.4 of 2."""
    scores: int
    """Bytes for each expert that a token may choose: the largest are found, backward gradients of
    all probabilities are worked out kernel by kernel."""
    choice: int
    """Bytes for each token: the largest are found."""


ROUTED_BYTES = (RoutedBytes(5.2, 1, 4.4, 146, 7100), RoutedBytes(7.2, 4, 11.9, 46, 0))


class KernelSeconds(dict[tuple[str, str], float]):
    """Seconds of the parts of a layer by name and pass, one by one."""

    def of_products(self, passed: str) -> float:
        """The products of a pass."""
        names = {name for name, _ in self if name.startswith(PRODUCT)}
        return self.of(passed, *names) if names else 0.0

    def of(self, passed: str, *names: str) -> float:
        """All parts of a pass, or those of some names."""
        return sum(
            seconds
            for (name, each), seconds in self.items()
            if each == passed and (not names or name in names)
        )


def layer_moved(part: ModelConfig, unit: UnitTokens) -> dict[tuple[str, str], float]:
    """Bytes of kernels that only move them, by name and pass; all norms and both sums of a layer
    together."""
    size, attention = part.element_bytes, part.attention
    outside = part.hidden * unit.held * size
    turned = (attention.query_width + attention.key_width) * unit.whole * size
    inside = part.ffn_per_token * unit.whole * size
    gate = GATE_MOVED[part.activation] if part.gated else (2, 3)
    blocks, norms, turned = 1 + part.attends, hidden_norms(part), turned * part.attends
    elements = {
        "norm": (2 * norms, 3 * norms),
        "sum": (3 * blocks, 3 * blocks),
        "rotation": (2, 2),
        "gate": gate,
    }
    if normed_heads(part):
        elements[HEAD_NORMS] = (2, 5)
    whole = {"norm": outside, "sum": outside, "rotation": turned, "gate": inside}
    whole[HEAD_NORMS] = turned
    found = {
        (name, passed): float(count * whole[name])
        for name, counts in elements.items()
        for passed, count in zip(PRODUCT_PASSES, counts)
    }
    return found | _exchanged(part, unit) | _routed(part, unit.whole)


def _exchanged(part: ModelConfig, unit: UnitTokens) -> dict[tuple[str, str], float]:
    """Bytes that are moved around exchanges of heads."""
    if not exchanges_heads(part, unit):
        return {}
    own, size = part.attention, unit.whole * part.element_bytes
    return {
        (HEADS_EXCHANGED, passed): float(size * (queries * own.query_width + keys * own.key_width))
        for passed, (queries, keys) in zip(PRODUCT_PASSES, EXCHANGE_MOVED)
    }


def _routed(part: ModelConfig, tokens: int) -> dict[tuple[str, str], float]:
    """Bytes of the rows that tokens have in experts, and of choosing these."""
    mixture, size = part.mixture, part.element_bytes
    if mixture is None:
        return {}
    found = {}
    for passed, each in zip(PRODUCT_PASSES, ROUTED_BYTES):
        outside = (each.rows * mixture.per_token + each.tokens) * part.hidden
        chosen = each.scores * mixture.experts + each.choice
        moved = size * (outside + each.inside * part.ffn_per_token) + chosen
        found[EXPERT_ROWS, passed] = float(tokens * moved)
    return found


def moving_kernels(part: ModelConfig, unit: UnitTokens) -> dict[str, int]:
    """Kernels of a layer that only move bytes, in a forward; as many in a backward. In front of a
    norm that stores w - 1 there are two that make w of it."""
    blocks, routed = 1 + part.attends, part.mixture is not None
    gate = 1 + (part.gated and part.activation == GELU_TANH)
    of_norm = 1 + 2 * part.norm_adds_one
    found = {"norm": of_norm * hidden_norms(part), "sum": blocks, "gate": gate}
    found["rotation"] = int(part.attends)
    found |= {HEAD_NORMS: of_norm * 2} if normed_heads(part) else {}
    found |= {HEADS_EXCHANGED: EXCHANGE_STARTS} if exchanges_heads(part, unit) else {}
    return found | ({EXPERT_ROWS: ROUTING_STARTS} if routed else {})


def exchanges_heads(part: ModelConfig, unit: UnitTokens) -> bool:
    """Whether ranks exchange tokens for heads around attention."""
    return part.attends and unit.attended > unit.whole


def hidden_norms(part: ModelConfig) -> int:
    """Norms of a layer that are as wide as it is: in front of its blocks, behind them, or both."""
    return sum(isinstance(record.kind, Norm) for record in part.layer_records)


def normed_heads(part: ModelConfig) -> bool:
    """Whether queries and keys have norms of their own."""
    return part.attends and part.qk_norm


def norms_over_all_heads(part: ModelConfig, tokens: int) -> dict[tuple[str, str], float]:
    """Bytes of norms of queries and keys that are over all heads, where several ranks have these:
    there they are not fused."""
    if not normed_heads(part) or part.qk_norm_over != PROJECTION:
        return {}
    width = part.attention.query_width + part.attention.key_width
    elements = width * tokens * part.element_bytes / 2
    moved = (elements * each for each in PROJECTION_NORM)
    return {(HEAD_NORMS, passed): each for passed, each in zip(PRODUCT_PASSES, moved)}


def logits_moved(part: ModelConfig, logits: float) -> float:
    """Bytes that the loss moves: logits are read twice and their gradients written."""
    return logits * (3 * part.element_bytes + _cap_moved(part))


def _cap_moved(part: ModelConfig) -> int:
    """The same of a bound on logits (model/layers/logit_cap.py), for each: to 32 bits and back, six
    kernels that read and write it there, and gradients times a slope."""
    if part.logit_cap is None:
        return 0
    size, wide = part.element_bytes, wide_bytes(part.element_bytes)
    converted = 0 if size == wide else 2 * (size + wide)
    return converted + 6 * 2 * wide + 2 * size + wide


def split_logits_moved(part: ModelConfig, logits: float, *, in_two_passes: bool) -> float:
    """Bytes that the loss moves where ranks share the words of a head, or devices do, which have
    two passes over them (model/layers/split_head.py, shard_head.py). It is a kernel for each step,
    in 32 bits: the largest is found, it is taken off, exponentials, their sum; divided by it, and
    times what labels weigh. Passes begin and end with a change of type. A bound on logits is six
    kernels there, and its slope is read."""
    size, wide = part.element_bytes, wide_bytes(part.element_bytes)
    changes = 0 if size == wide else 4 if in_two_passes else 2
    bounded = 0 if part.logit_cap is None else 6 * 2 + 3
    return logits * (changes * (size + wide) + (1 + 2 + 2 + 1 + 2 + 2 + bounded) * wide)


class LayerMatrix(NamedTuple):
    """What a product of a layer multiplies tokens with: a matrix, or some of several alike, where
    tokens choose among experts."""

    outputs: int
    inputs: int
    held: int = 1
    """Matrices that a rank has."""
    met: int = 1
    """How many of these a token is multiplied with."""
    moved: tuple[int, int] = (1, 1)
    """How often what a product gives is read or written, or as much else, forward and backward."""

    @property
    def sides(self) -> tuple[int, int]:
        return self.outputs, self.inputs

    def dealt(self, tokens: int) -> tuple[int, int]:
        """Matrices that tokens meet, and the rows of each, of which all have as many.

        >>> LayerMatrix(8, 8).dealt(64), LayerMatrix(8, 8, held=4, met=2).dealt(64)
        ((1, 64), (4, 32))
        >>> LayerMatrix(8, 8, held=4, met=2).dealt(1)
        (2, 1)
        """
        rows = tokens * self.met
        groups = max(1, min(self.held, rows))
        return groups, -(-rows // groups)


def multiplied_matrices(part: ModelConfig) -> Iterator[list[Parameter]]:
    """The matrices of each product of a layer: those of one input are one product, and so are those
    of all experts. A router's is none that ranks share along an axis."""
    for record in part.layer_records:
        for axis in (None, OUTPUTS, INPUTS):
            own = [
                each for each in record.kind.parameters if each.axis == axis and len(each.shape) > 1
            ]
            if own:
                yield own


def layer_matrix(part: ModelConfig, own: list[Parameter]) -> LayerMatrix:
    """What the matrices of a product are together; those of one expert lie behind each other."""
    held = len({each.expert for each in own})
    met = part.mixture.per_token if part.mixture and own[0].expert is not None else 1
    outputs = sum(each.shape[0] for each in own) // held
    return LayerMatrix(outputs, own[0].shape[1], held, met)


def adapter_matrices(part: ModelConfig) -> list[list[Parameter]]:
    """The matrices of each product of adapters: those A that have one input are one product."""
    trained = (
        each
        for record in part.layer_records
        for each in record.parameters
        if each.trained and not part.trains_all
    )
    found = groupby(
        trained, key=lambda each: each.name if _is_up(each) else (each.shape[1], each.axis)
    )
    return [[*own] for _, own in found]


def adapter_matrix(own: list[Parameter]) -> LayerMatrix:
    """What the matrices of a product of adapters are together. B adds to what is there; so does A
    backward, which also reads its input once more, for what lies between both is not kept
    (model/layers/adapters.py)."""
    outputs = sum(each.shape[0] for each in own)
    return LayerMatrix(outputs, own[0].shape[1], moved=(2, 1) if _is_up(own[0]) else (1, 3))


def _is_up(matrix: Parameter) -> bool:
    return matrix.name.removesuffix(".weight").endswith(UP)
