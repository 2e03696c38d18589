"""The experts of a layer and their router: E gated MLPs, of which a token goes through k.

    h hidden, f ffn, E experts, k per_token

All E are stored, k of them are computed. Tensor-parallel ranks share the f elements inside of every
expert, and each has the whole router. The names are those of the family's checkpoints.
"""

from dataclasses import dataclass
from functools import cached_property

from penstock.arch.layers.parameter import INPUTS, OUTPUTS, InitialValue, Parameter
from penstock.arch.layers.record import LayerRecord, wide_bytes
from penstock.arch.mixture import ExpertMixture

BLOCK_NAMES = {"mixtral": "block_sparse_moe", "qwen3_moe": "mlp"}
"""The part of a layer that holds router and experts, in the words of each family."""
MATRIX_NAMES = {
    "mixtral": ("w1", "w3", "w2"),
    "qwen3_moe": ("gate_proj", "up_proj", "down_proj"),
}
"""Gate, up and down."""
INDEX_BYTES = 8
"""Of the number of an expert, or of a row."""


LAUNCHED_FOR = 4_000_000_000
"""Multiplications of a kernel that a GPU does in about the time in which its host launches one:
0.02 ms, which PyTorch takes for a product that adds to 32 bits beside an H200."""


def one_gradient_kernel(rows: float, outputs: int, inputs: int) -> bool:
    """Whether one kernel adds up the weight gradients of all experts on a GPU, in 16 bits: it is
    slower than one for each where these are long, with so many rows of an expert on average.

    >>> one_gradient_kernel(512, 1536, 2048), one_gradient_kernel(512, 28672, 4096)
    (True, False)
    """
    return rows * outputs * inputs < LAUNCHED_FOR


def router_name(mixture: ExpertMixture) -> str:
    """The router's matrix behind the prefix of its layer.

    >>> router_name(ExpertMixture(8, 2))
    'block_sparse_moe.gate'
    """
    return f"{BLOCK_NAMES[mixture.family]}.gate"


def expert_names(mixture: ExpertMixture, own: range) -> tuple[list[str], list[str]]:
    """The matrices of some experts in the order in which they lie: gates and ups, then downs.

    >>> expert_names(ExpertMixture(4, 1, family="qwen3_moe"), range(2, 4))[1]
    ['mlp.experts.2.down_proj', 'mlp.experts.3.down_proj']
    """
    block, (gate, up, down) = BLOCK_NAMES[mixture.family], MATRIX_NAMES[mixture.family]
    each = [f"{block}.experts.{expert}." for expert in own]
    return [name + x for name in each for x in (gate, up)], [name + down for name in each]


@dataclass(frozen=True)
class ExpertMlp(LayerRecord):
    """A router and its experts."""

    hidden: int
    ffn: int
    mixture: ExpertMixture
    element_bytes: int

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        inwards, back = expert_names(self.mixture, range(self.mixture.held))
        router = (self.mixture.experts, self.hidden)
        return (
            Parameter(f"{router_name(self.mixture)}.weight", router, adds_over="shares"),
            *(self._inwards(name, at // 2) for at, name in enumerate(inwards)),
            *(self._back(name, expert) for expert, name in enumerate(back)),
        )

    def _inwards(self, name: str, expert: int) -> Parameter:
        shape = (self.ffn, self.hidden)
        return Parameter(f"{name}.weight", shape, axis=OUTPUTS, expert=expert)

    def _back(self, name: str, expert: int) -> Parameter:
        shape, start = (self.hidden, self.ffn), InitialValue.NORMAL_TO_RESIDUAL
        return Parameter(f"{name}.weight", shape, start, axis=INPUTS, expert=expert)

    @property
    def active_weights(self) -> int:
        """The router's, and those of k experts."""
        return self.mixture.experts * self.hidden + self.mixture.per_token * self._expert

    @property
    def _expert(self) -> int:
        """Elements of one expert's matrices."""
        return 3 * self.ffn * self.hidden

    @property
    def saved_bytes(self) -> int:
        """For each of k rows 3 f elements, the row's weight, and the numbers of its place and of
        its expert; the probabilities of E experts, and k weights, in 32 bits at least. Rows that
        came from other ranks are saved too, h elements each."""
        came = self.hidden if self.mixture.held < self.mixture.experts else 0
        row = (3 * self.ffn + 1 + came) * self.element_bytes + 2 * INDEX_BYTES
        wide = wide_bytes(self.element_bytes)
        return self.mixture.per_token * (row + wide) + self.mixture.experts * wide

    @property
    def stash_bytes(self) -> int:
        """The router's input and the gradient of its output, h + E; for each of k rows inputs and
        gradients of outputs of the experts' matrices, 2 h + 3 f."""
        rows = self.mixture.per_token * (2 * self.hidden + 3 * self.ffn)
        return (self.hidden + self.mixture.experts + rows) * self.element_bytes

    @property
    def backward_bytes(self) -> int:
        """Gradients inside, and 3 h wide elements, the products of the norm in front of it."""
        return self.fused_backward_bytes + 3 * self.hidden * wide_bytes(self.element_bytes)

    @property
    def fused_backward_bytes(self) -> int:
        """For each of k rows 4 f + 3 h elements, and h for each token; three wide ones for each
        expert, the gradients of its probability."""
        rows = self.mixture.per_token * (4 * self.ffn + 3 * self.hidden)
        routed = 3 * self.mixture.experts * wide_bytes(self.element_bytes)
        return (rows + self.hidden) * self.element_bytes + routed

    @property
    def waiting_bytes(self) -> int:
        """For each of k rows 3 f + 2 h elements, and E for each token: what waits for the weight
        gradient and was not saved."""
        rows = self.mixture.per_token * (3 * self.ffn + 2 * self.hidden)
        return (rows + self.mixture.experts) * self.element_bytes
