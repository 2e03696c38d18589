"""How large a model is, and which layers it is made of: one object describes it to everybody.

What a layer costs, keeps and is called is said by the record of its kind (arch/layers); here are
the numbers that give the records their sizes, and the records of a layer in their order. What they
add up to is in arch/record_sums.py, published models are in arch/presets.py.

    h hidden, f ffn, a heads, g kv_heads, d head_size, V vocabulary
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache

from penstock.arch.attention_rule import AttentionRule
from penstock.arch.block_rules import BlockRules, refuse_blocks, refuse_unlike
from penstock.arch.blocks import LayerBlock
from penstock.arch.dealing import deal, deal_heads
from penstock.arch.field_rules import refuse_field
from penstock.arch.layers.attention import HEAD, Attention
from penstock.arch.layers.bracket import Bypass, Scorer
from penstock.arch.layers.embedding import Embedding
from penstock.arch.layers.expert_mlp import ExpertMlp
from penstock.arch.layers.gated_mlp import SILU, GatedMlp, PlainMlp
from penstock.arch.layers.lm_head import LmHead
from penstock.arch.layers.norm import AFTER, BEFORE, BOTH, Norm
from penstock.arch.layers.record import LayerRecord
from penstock.arch.lora import Lora, refuse_tied_target
from penstock.arch.mixture import ExpertMixture, refuse_beside_experts
from penstock.arch.rope_scaling import RopeScaling
from penstock.arch.rotary_rules import RotaryRules, refuse_rotary
from penstock.arch.subsampling import Subsampling, refuse_beside_subsampling
from penstock.arch.trained import TrainedSums
from penstock.errors import ShapeError


@dataclass(frozen=True)
class ModelConfig(BlockRules, RotaryRules, TrainedSums):
    """A decoder: norms, rotary positions, grouped-query attention, an MLP."""

    layers: int
    """Transformer layers."""
    hidden: int
    """Width of a token between layers (hidden size)."""
    ffn: int
    """Width of a token inside the MLP (intermediate size)."""
    heads: int
    """Query heads."""
    kv_heads: int
    """Key/value heads; each is shared by the same number of query heads."""
    head_size: int
    """Width of one head; an even number."""
    vocabulary: int
    """Number of tokens in the vocabulary; the byte tokenizer has 256."""
    gated: bool = True
    """Whether the MLP has a gate: three matrices instead of two."""
    tied: bool = False
    """Whether embedding and head are one matrix; it saves parameters, not FLOPs."""
    element_bytes: int = 2
    """Bytes of one activation; keys, values and boundaries are in it too."""

    rope_theta: float = 10000.0
    """Base of the rotary frequencies."""
    rope_scaling: RopeScaling | None = None
    """How the frequencies were scaled for a longer context; None: not scaled."""
    norm_epsilon: float = 1e-5
    """Epsilon of RMSNorm: added to the mean square before the root is taken."""
    qkv_bias: bool = False
    """Whether queries, keys and values have a bias."""
    qk_norm: bool = False
    """Whether queries and keys are normalised before rotary positions are applied."""
    window: int | None = None
    """Sliding window: tokens that a query attends to, itself included; None: all."""
    max_positions: int = 131072
    """Longest sequence the model was made for; a limit only with dynamic rope scaling."""
    lora: Lora | None = None
    """Adapters, which alone are trained; None: all weights are."""

    qk_norm_over: str = HEAD
    """What queries and keys are normalised over: each `head`, or the `projection` of all heads."""
    window_pattern: tuple[bool, ...] = ()
    """Which layers have the window, repeated along the model; empty: all of them."""
    local_rope_theta: float | None = None
    """Base of the rotary frequencies, not scaled, in layers with the window; None: no other."""
    activation: str = SILU
    """Function of the MLP's gate: `silu`, or `gelu_tanh` (GELU by its tanh approximation)."""
    norms: str = BEFORE
    """Where the norms of a layer stand: `before` attention and MLP, `after` them, or `both`."""
    norm_adds_one: bool = False
    """Whether a norm multiplies by 1 + its weight."""
    scaled_embedding: bool = False
    """Whether embeddings are multiplied by the square root of hidden."""
    score_cap: float | None = None
    """Bound of attention scores: they become cap x tanh(score / cap); None: not bounded."""
    logit_cap: float | None = None
    """The same for the logits of the head."""
    query_scalar: float | None = None
    """Attention scores are divided by the square root of it; None: head_size."""
    fused_files: bool = False
    """Whether files of weights hold queries, keys and values as one matrix, and gate and up as
    another."""
    mixture: ExpertMixture | None = None
    """Experts in place of the MLP of every layer; None: there is one MLP."""
    rotary_size: int | None = None
    """Elements at the start of each head that rotary positions turn; None: all of them."""
    blocks: tuple[LayerBlock, ...] = ()
    """What layers are made of where they differ, repeated along the model: the width of the MLP,
    and whether there is attention; empty: all have attention and an MLP of width `ffn`."""
    subsampling: Subsampling | None = None
    """Layers that only some tokens go through; None: all tokens go through all layers."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # once: many keys have a model; text differs between processes
        widths = (self.hidden, self.ffn, self.heads, self.kv_heads, self.head_size)
        return hash((self.layers, *widths, self.vocabulary, self.element_bytes, self.gated))

    def __post_init__(self) -> None:
        for field in fields(self):
            refuse_field(field.name, getattr(self, field.name))
        if self.heads % self.kv_heads:
            raise ShapeError(
                f"{self.heads} heads cannot share {self.kv_heads} key/value heads evenly",
                hint="kv_heads must divide heads",
            )
        refuse_rotary(self)
        refuse_tied_target(self.tied, self.lora)
        if self.mixture is not None:
            refuse_beside_experts(self)
        if self.blocks:
            refuse_blocks(self)
        if self.subsampling is not None:
            refuse_beside_subsampling(self)

    def share(self, index: int, of: int) -> "ModelConfig":
        """What rank `index` of `of` that share the matrices computes with: some of the heads, of
        what is inside the MLP, and of the vocabulary.

        >>> ModelConfig(4, 64, 192, 4, 2, 16, 256).share(0, 2).heads
        2
        """
        return _share(self, index, of)

    def attention_rule(self, layer: int) -> AttentionRule:
        """What is special about the attention of a layer."""
        return AttentionRule(self.window if self.has_window(layer) else None, self.score_cap)

    def has_window(self, layer: int) -> bool:
        """Whether a layer has the sliding window.

        >>> config = ModelConfig(4, 8, 8, 1, 1, 8, 9, window=4, window_pattern=(True, False))
        >>> [config.has_window(layer) for layer in range(4)]
        [True, False, True, False]
        """
        pattern = self.window_pattern or (True,)
        return self.window is not None and pattern[layer % len(pattern)]

    def windowed(self, layers: range) -> int:
        """How many of some layers have attention with the window."""
        if self.window is None:
            return 0
        return sum(map(self.has_window, self.attending(layers)))

    def growing_flops(self, length: int) -> tuple[int, int]:
        """Forward FLOPs of a token of long sequences of that length: what it costs anywhere, and
        what each token before it adds. In a layer with a window it soon has all of the window
        before it, so that counts as what it costs anywhere.

        >>> windowed = ModelConfig(2, 8, 8, 1, 1, 8, 9, window=4, window_pattern=(True, False))
        >>> plain = replace(windowed, window=None)
        >>> [a - b for a, b in zip(windowed.growing_flops(64), plain.growing_flops(64))]
        [128, -32]
        """
        near = self.windowed(range(self.layers))
        if self.window is None or not near or length <= self.window:
            return self.flops_per_token, self.flops_per_pair
        pair = self.attending_kind.pair_flops
        return self.flops_per_token + near * pair * self.window, self.flops_per_pair - near * pair

    @property
    def score_scale(self) -> float:
        """What queries are multiplied by, beside the division of scores by the root of head_size
        that every kernel does."""
        return 1.0 if self.query_scalar is None else (self.head_size / self.query_scalar) ** 0.5

    @property
    def embedding_scale(self) -> float:
        return self.hidden**0.5 if self.scaled_embedding else 1.0

    @cached_property
    def layer_records(self) -> tuple[LayerRecord, ...]:
        """The records of one layer, in the order in which a forward meets them; of a model whose
        layers are alike."""
        refuse_unlike(self.kinds)
        attention: tuple[LayerRecord, ...] = ()
        if self.attends:
            attention = (
                *self._norms("input_layernorm", BEFORE, BOTH),
                self.attention,
                *self._norms("post_attention_layernorm", AFTER, BOTH),
            )
        return self.as_trained(
            *attention,
            *self._norms(MLP_NORM[self.norms], BEFORE, BOTH),
            self.mlp,
            *self._norms("post_feedforward_layernorm", AFTER, BOTH),
        )

    @cached_property
    def mlp(self) -> LayerRecord:
        """What stands between the norms of the second half of a layer."""
        if self.mixture is not None:
            return ExpertMlp(self.hidden, self.ffn, self.mixture, self.element_bytes)
        mlp = GatedMlp if self.gated else PlainMlp
        return mlp(self.hidden, self.width, self.element_bytes)

    @property
    def ffn_per_token(self) -> int:
        """Elements inside the MLPs of a layer that one token goes through."""
        return self.width * (self.mixture.per_token if self.mixture else 1)

    def _norms(self, name: str, *places: str) -> tuple[Norm, ...]:
        """A norm of the layer, where it has one there. Behind a block it keeps its input alone,
        since what it gives is added up; without norms in front of blocks, that sum is kept too."""
        if self.norms not in places:
            return ()
        kept = 1 if AFTER in places and self.norms == BOTH else 2
        return (Norm(name, self.hidden, self.element_bytes, kept, self.norm_adds_one),)

    @cached_property
    def attention(self) -> Attention:
        heads = (self.heads, self.kv_heads, self.head_size)
        parts, norm = (self.qkv_bias, self.qk_norm), (self.qk_norm_over, self.norm_adds_one)
        return Attention(self.hidden, *heads, *parts, self.element_bytes, *norm)

    def opening_records(self, layer: int) -> tuple[LayerRecord, ...]:
        """Scorers of the brackets that open in front of a layer."""
        if self.subsampling is None:
            return ()
        sizes = (self.hidden, self.element_bytes)
        return tuple(Scorer(pair.number, *sizes) for pair in self.subsampling.opened(layer))

    def closing_records(self, layer: int) -> tuple[LayerRecord, ...]:
        """Bypasses of the brackets that close behind a layer."""
        if self.subsampling is None:
            return ()
        sizes = (self.hidden, self.element_bytes)
        return tuple(Bypass(pair.number, *sizes) for pair in self.subsampling.closed(layer))

    @cached_property
    def embedding(self) -> Embedding:
        return Embedding(self.vocabulary, self.hidden, self.element_bytes)

    @cached_property
    def last_norm(self) -> Norm:
        size = self.element_bytes
        return Norm("model.norm", self.hidden, size, adds_one=self.norm_adds_one)

    @cached_property
    def head(self) -> LmHead:
        return LmHead(self.vocabulary, self.hidden, self.element_bytes, self.logit_cap)


def with_layers(config: ModelConfig, layers: int) -> ModelConfig:
    """A model with another number of layers, and the same brackets around as large a part of
    them."""
    subsampling = config.subsampling
    if subsampling is not None:
        subsampling = replace(subsampling, structure=subsampling.over(layers))
    return replace(config, layers=layers, subsampling=subsampling)


MLP_NORM = {BEFORE: "post_attention_layernorm", AFTER: "", BOTH: "pre_feedforward_layernorm"}
"""What the norm in front of the MLP is called, by where the norms of a layer stand."""


@lru_cache(maxsize=1024)
def _share(whole: ModelConfig, index: int, of: int) -> ModelConfig:
    queries, keys = map(len, deal_heads(whole.heads, whole.kv_heads, index, of)[:2])
    ffn, words = (len(deal(size, index, of)) for size in (whole.ffn, whole.vocabulary))
    blocks = tuple(block.share(index, of) for block in whole.blocks)
    shared = replace(whole, heads=queries, kv_heads=keys, ffn=ffn, vocabulary=words)
    return replace(shared, blocks=blocks) if blocks else shared
