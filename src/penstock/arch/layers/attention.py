"""Grouped-query attention with its projections.

    h hidden, a heads, g kv_heads, d head_size

Tensor-parallel ranks share its heads (arch/dealing.py).
"""

from dataclasses import dataclass
from functools import cached_property

from penstock.arch.layers.norm import norm_start
from penstock.arch.layers.parameter import INPUTS, OUTPUTS, HeadSplit, InitialValue, Parameter
from penstock.arch.layers.record import LSE_BYTES, LayerRecord, wide_bytes

HEAD, PROJECTION = "head", "projection"
NORM_SPANS = (HEAD, PROJECTION)
"""What a norm of queries and keys may be over."""

HOST_SQUARE = 128
"""Most queries of a triangle that the kernel of the CPU is given."""
HOST_KEYS = 512
"""Most keys of a rectangle in its backward."""
LONG_WINDOW = 4096
"""Keys of a window from which on a GPU computes it as triangles, with a kernel that knows none: one
call of flash, which knows windows, takes longer then. Triangles of a short one are small, and
joining them takes long."""
FOLDED_BELOW = 768
"""Queries from which on the kernel of the CPU takes its largest blocks by itself; fewer are folded,
query heads of a group one behind the other (model/attention/folded.py)."""


@dataclass(frozen=True)
class Attention(LayerRecord):
    """Projections to queries, keys and values, attention, and the projection back."""

    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    qkv_bias: bool
    qk_norm: bool
    element_bytes: int
    norm_over: str = HEAD
    norm_adds_one: bool = False

    @property
    def query_width(self) -> int:
        """a d"""
        return self.heads * self.head_size

    @property
    def key_width(self) -> int:
        """g d"""
        return self.kv_heads * self.head_size

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        back = Parameter(
            "self_attn.o_proj.weight",
            (self.hidden, self.query_width),
            InitialValue.NORMAL_TO_RESIDUAL,
            axis=INPUTS,
            heads=self._splits["q"],
            behind_attention=True,
        )
        return (*self._projections(), *self._biases(), *self._norms(), back)

    @property
    def _widths(self) -> dict[str, int]:
        return {"q": self.query_width, "k": self.key_width, "v": self.key_width}

    @property
    def _splits(self) -> dict[str, HeadSplit]:
        """Query heads go with their key/value head."""
        sizes = (self.heads, self.kv_heads, self.head_size)
        queries, keys = HeadSplit(*sizes, "queries"), HeadSplit(*sizes, "keys")
        return {"q": queries, "k": keys, "v": keys}

    def _projections(self) -> list[Parameter]:
        return [
            Parameter(
                f"self_attn.{x}_proj.weight",
                (width, self.hidden),
                axis=OUTPUTS,
                heads=self._splits[x],
                adds_over="heads",
            )
            for x, width in self._widths.items()
        ]

    def _biases(self) -> list[Parameter]:
        widths = self._widths if self.qkv_bias else {}
        return [
            Parameter(
                f"self_attn.{x}_proj.bias",
                (width,),
                InitialValue.ZEROS,
                axis=OUTPUTS,
                heads=self._splits[x],
                adds_over="heads",
            )
            for x, width in widths.items()
        ]

    def _norms(self) -> list[Parameter]:
        names, start = "qk" if self.qk_norm else "", norm_start(self.norm_adds_one)
        if self.norm_over == HEAD:
            return [
                Parameter(f"self_attn.{x}_norm.weight", (self.head_size,), start, adds_over="heads")
                for x in names
            ]
        return [
            Parameter(
                f"self_attn.{x}_norm.weight",
                (self._widths[x],),
                start,
                axis=OUTPUTS,
                heads=self._splits[x],
                adds_over="heads",
            )
            for x in names
        ]

    @property
    def flops_per_pair(self) -> int:
        """Scores 2 a d, weighted sum 2 a d."""
        return 4 * self.query_width

    @property
    def kv_bytes(self) -> int:
        """2 g d elements."""
        return 2 * self.key_width * self.element_bytes

    @property
    def saved_bytes(self) -> int:
        """What attention itself saves, and with qk-norm (a + g) d elements more: queries and keys
        before it."""
        return self.attended_bytes + self.before_norms_bytes

    @property
    def attended_bytes(self) -> int:
        """2 a d elements (queries, output), and one log-sum-exp per head."""
        return 2 * self.query_width * self.element_bytes + LSE_BYTES * self.heads

    @property
    def before_norms_bytes(self) -> int:
        before_norms = self.query_width + self.key_width if self.qk_norm else 0
        return before_norms * self.element_bytes

    @property
    def sliced_bytes(self) -> int:
        """With qk-norm g d elements: values stay with queries and keys before their norms.

        They are parts of one projection, which is kept whole. Values of a whole sequence are only
        there; those of slices also lie with the other slices', where they count as `kv`.
        """
        return self.key_width * self.element_bytes if self.qk_norm else 0

    @property
    def stash_bytes(self) -> int:
        """Inputs of the matrices, h + a d; gradients of their outputs, (a + 2 g) d + h."""
        elements = 2 * self.hidden + 2 * self.query_width + 2 * self.key_width
        return elements * self.element_bytes

    @property
    def backward_bytes(self) -> int:
        """2 h + 3 a d + 4 g d elements: gradients of the output, of Q K V, of their projection;
        with qk-norm 3 a d wide ones, the products of the queries' norm."""
        elements = 2 * self.hidden + 3 * self.query_width + 4 * self.key_width
        products = 3 * self.query_width * wide_bytes(self.element_bytes) if self.qk_norm else 0
        return elements * self.element_bytes + products

    @property
    def fused_backward_bytes(self) -> int:
        """h + 3 a d + 4 g d elements, and what the kernel sums up: (a + 2 g) d wide ones, and two
        numbers for each head."""
        elements = self.hidden + 3 * self.query_width + 4 * self.key_width
        sums = (self.query_width + 2 * self.key_width) * wide_bytes(self.element_bytes)
        return elements * self.element_bytes + sums + 2 * LSE_BYTES * self.heads
