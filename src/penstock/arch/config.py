"""How large a model is, and which layers it is made of: one object describes it to everybody.

What a layer costs, keeps and is called is said by the record of its kind (arch/layers); here are
the numbers that give the records their sizes, the records of a layer in their order, and the sums
over them, per token and per layer. Whoever needs more than a sum walks `layer_records`.

    h hidden, f ffn, a heads, g kv_heads, d head_size, V vocabulary
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any

from penstock.arch.dealing import deal, deal_heads
from penstock.arch.layers.attention import Attention
from penstock.arch.layers.embedding import Embedding
from penstock.arch.layers.gated_mlp import GatedMlp, PlainMlp
from penstock.arch.layers.lm_head import LmHead
from penstock.arch.layers.norm import Norm
from penstock.arch.layers.record import LayerRecord
from penstock.arch.limits import LARGEST_OF_MODEL, MOST_MODEL_LAYERS, refuse_count, refuse_number
from penstock.arch.rope_scaling import RopeScaling
from penstock.errors import ShapeError, nearest


@dataclass(frozen=True)
class ModelConfig:
    """A Llama-style model: pre-norm, rotary positions, grouped-query attention."""

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
    """Whether each query and key head is normalised before rotary positions are applied."""
    window: int | None = None
    """Sliding window: tokens that a query attends to, itself included; None: all."""
    max_positions: int = 131072
    """Longest sequence the model was made for; a limit only with dynamic rope scaling."""

    def __post_init__(self) -> None:
        for field in fields(self):
            _refuse_field(field.name, getattr(self, field.name))
        if self.heads % self.kv_heads:
            raise ShapeError(
                f"{self.heads} heads cannot share {self.kv_heads} key/value heads evenly",
                hint="kv_heads must divide heads",
            )
        if self.head_size % 2:
            raise ShapeError(
                f"head_size is {self.head_size}, but rotary positions rotate pairs of elements",
                hint="give an even head_size",
            )

    @property
    def longest(self) -> int | None:
        """Tokens up to which full attention and fixed frequencies are this model; None: any."""
        dynamic = self.rope_scaling is not None and self.rope_scaling.kind == "dynamic"
        bounds = (self.window, self.max_positions if dynamic else None)
        return min((bound for bound in bounds if bound is not None), default=None)

    def refuse_length(self, length: int) -> None:
        """Refuse sequences that a sliding window or dynamic frequencies would change."""
        if self.longest is None or length <= self.longest:
            return
        if self.window is not None and length > self.window:
            what = f"the sliding window of {self.window} tokens, which is not supported"
        else:
            what = f"the {self.max_positions} positions up to which dynamic rope scaling is fixed"
        raise ShapeError(
            f"a sequence of {length} tokens exceeds {what}",
            hint=f"train on at most {self.longest} tokens, where it makes no difference",
        )

    def share(self, index: int, of: int) -> "ModelConfig":
        """What rank `index` of `of` that share the matrices computes with: some of the heads, of
        what is inside the MLP, and of the vocabulary.

        >>> MODELS["tiny"].share(0, 2).heads
        2
        """
        return _share(self, index, of)

    @cached_property
    def layer_records(self) -> tuple[LayerRecord, ...]:
        """The records of one layer, in the order in which a forward meets them."""
        hidden, size = self.hidden, self.element_bytes
        mlp = GatedMlp if self.gated else PlainMlp
        return (
            Norm("input_layernorm", hidden, size),
            self.attention,
            Norm("post_attention_layernorm", hidden, size),
            mlp(hidden, self.ffn, size),
        )

    @cached_property
    def attention(self) -> Attention:
        heads = (self.heads, self.kv_heads, self.head_size)
        return Attention(self.hidden, *heads, self.qkv_bias, self.qk_norm, self.element_bytes)

    @cached_property
    def embedding(self) -> Embedding:
        return Embedding(self.vocabulary, self.hidden, self.element_bytes)

    @cached_property
    def last_norm(self) -> Norm:
        return Norm("model.norm", self.hidden, self.element_bytes)

    @cached_property
    def head(self) -> LmHead:
        return LmHead(self.vocabulary, self.hidden, self.element_bytes)

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
        layers = self.layers * (self.layer_weights + self.layer_vectors)
        return layers + self.last_norm.vectors + embeddings * self.head_weights

    @cached_property
    def head_weights(self) -> int:
        """Elements of the output layer, h V."""
        return self.head.weights

    @cached_property
    def layer_flops(self) -> int:
        """Forward FLOPs of one token in the weights of one layer."""
        return sum(record.flops_per_token for record in self.layer_records)

    @property
    def flops_per_token(self) -> int:
        """Forward FLOPs of one token in all weights, head included."""
        return self.layers * self.layer_flops + self.head.flops_per_token

    @cached_property
    def pair_flops(self) -> int:
        """Forward FLOPs of one query-key pair in one layer."""
        return sum(record.flops_per_pair for record in self.layer_records)

    @property
    def flops_per_pair(self) -> int:
        """Forward FLOPs of one query-key pair in all layers."""
        return self.layers * self.pair_flops

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


@lru_cache(maxsize=1024)
def _share(whole: ModelConfig, index: int, of: int) -> ModelConfig:
    queries, keys = map(len, deal_heads(whole.heads, whole.kv_heads, index, of)[:2])
    ffn, words = (len(deal(size, index, of)) for size in (whole.ffn, whole.vocabulary))
    return replace(whole, heads=queries, kv_heads=keys, ffn=ffn, vocabulary=words)


def _refuse_field(name: str, value: Any) -> None:
    if name in _OPTIONAL and value is None:
        return
    if name in ("rope_theta", "norm_epsilon"):
        refuse_number(name, value)
    elif name == "rope_scaling":
        _refuse_unless(isinstance(value, RopeScaling), name, value, "give a RopeScaling or None")
    elif name in _SWITCHES:
        _refuse_unless(isinstance(value, bool), name, value, "give true or false")
    else:
        refuse_count(name, value, MOST_MODEL_LAYERS if name == "layers" else LARGEST_OF_MODEL)


def _refuse_unless(good: bool, name: str, value: Any, hint: str) -> None:
    if not good:
        raise ShapeError(f"{name} is {value}", hint=hint)


_SWITCHES = ("gated", "tied", "qkv_bias", "qk_norm")
_OPTIONAL = ("rope_scaling", "window")


def _llama3(sizes: ModelConfig) -> ModelConfig:
    return replace(sizes, rope_theta=5e5, max_positions=8192)


def _to_128k(short: ModelConfig, factor: float) -> ModelConfig:
    """Llama 3.1 and 3.2 reach further by longer wavelengths."""
    scaling = RopeScaling("llama3", factor, short.max_positions)
    return replace(short, rope_scaling=scaling, max_positions=131072)


def _qwen2(sizes: ModelConfig, positions: int) -> ModelConfig:
    return replace(sizes, qkv_bias=True, rope_theta=1e6, norm_epsilon=1e-6, max_positions=positions)


def _qwen3(sizes: ModelConfig) -> ModelConfig:
    return replace(sizes, qk_norm=True, rope_theta=1e6, norm_epsilon=1e-6, max_positions=40960)


_LLAMA3_8B = _llama3(ModelConfig(32, 4096, 14336, 32, 8, 128, 128256))
_LLAMA3_70B = _llama3(ModelConfig(80, 8192, 28672, 64, 8, 128, 128256))
_LLAMA3_1B = _llama3(ModelConfig(16, 2048, 8192, 32, 8, 64, 128256, tied=True))
_LLAMA3_3B = _llama3(ModelConfig(28, 3072, 8192, 24, 8, 128, 128256, tied=True))

MODELS: dict[str, ModelConfig] = {
    "tiny": ModelConfig(4, 64, 192, 4, 2, 16, 256),
    "llama-7b": ModelConfig(
        32, 4096, 11008, 32, 32, 128, 32000, norm_epsilon=1e-6, max_positions=2048
    ),
    "llama2-13b": ModelConfig(40, 5120, 13824, 40, 40, 128, 32000, max_positions=4096),
    "llama2-70b": ModelConfig(80, 8192, 28672, 64, 8, 128, 32000, max_positions=4096),
    "llama3-8b": _LLAMA3_8B,
    "llama3-70b": _LLAMA3_70B,
    "llama3.1-8b": _to_128k(_LLAMA3_8B, 8.0),
    "llama3.1-70b": _to_128k(_LLAMA3_70B, 8.0),
    "llama3.2-1b": _to_128k(_LLAMA3_1B, 32.0),
    "llama3.2-3b": _to_128k(_LLAMA3_3B, 32.0),
    "mistral-7b-v0.1": ModelConfig(
        32, 4096, 14336, 32, 8, 128, 32000, window=4096, max_positions=32768
    ),
    "mistral-7b-v0.3": ModelConfig(
        32, 4096, 14336, 32, 8, 128, 32768, rope_theta=1e6, max_positions=32768
    ),
    "qwen2.5-0.5b": _qwen2(ModelConfig(24, 896, 4864, 14, 2, 64, 151936, tied=True), 32768),
    "qwen2.5-7b": _qwen2(ModelConfig(28, 3584, 18944, 28, 4, 128, 152064), 131072),
    "qwen3-0.6b": _qwen3(ModelConfig(28, 1024, 3072, 16, 8, 128, 151936, tied=True)),
    "qwen3-8b": _qwen3(ModelConfig(36, 4096, 12288, 32, 8, 128, 151936)),
    "qwen3-32b": _qwen3(ModelConfig(64, 5120, 25600, 64, 8, 128, 151936)),
}
"""Published configurations by name, and one that fits a test."""


def model(name: str) -> ModelConfig:
    """The model of that name.

    >>> model("llama-7b").parameters
    6738415616
    """
    if name not in MODELS:
        raise ShapeError(f"no model is called {name!r}", hint=nearest(name, list(MODELS)))
    return MODELS[name]
