"""Every parameter of a model: its name and its shape, said once.

Stages allocate by this list, checkpoints and exported files are checked against it. The names are
those of Hugging Face checkpoints, so that nothing has to be translated on the way in or out.
"""

from math import prod

from penstock.arch.config import ModelConfig
from penstock.errors import ShapeError

Shape = tuple[int, ...]
Shapes = dict[str, Shape]

EMBEDDING = "model.embed_tokens.weight"
LAST_NORM = "model.norm.weight"
HEAD = "lm_head.weight"


def layer_prefix(layer: int) -> str:
    """What the names of one layer's parameters begin with.

    >>> layer_prefix(3)
    'model.layers.3.'
    """
    return f"model.layers.{layer}."


def expected_shapes(config: ModelConfig) -> Shapes:
    """The parameters of the whole model along its depth; a tied head is the embedding.

    >>> len(expected_shapes(ModelConfig(2, 8, 24, 2, 1, 4, 10)))
    21
    """
    shapes: Shapes = {EMBEDDING: (config.vocabulary, config.hidden)}
    for layer in range(config.layers):
        shapes |= layer_shapes(config, layer)
    shapes[LAST_NORM] = (config.hidden,)
    if not config.tied:
        shapes[HEAD] = (config.vocabulary, config.hidden)
    return shapes


def layer_shapes(config: ModelConfig, layer: int) -> Shapes:
    """The parameters of one layer, in the order in which a forward meets them."""
    return lead_shapes(config, layer) | follow_shapes(config, layer)


def lead_shapes(config: ModelConfig, layer: int) -> Shapes:
    """The parameters in front of a layer's attention."""
    rows = {
        "q": config.heads * config.head_size,
        "k": config.kv_heads * config.head_size,
        "v": config.kv_heads * config.head_size,
    }
    shapes: Shapes = {"input_layernorm.weight": (config.hidden,)}
    shapes |= {f"self_attn.{x}_proj.weight": (rows[x], config.hidden) for x in rows}
    if config.qkv_bias:
        shapes |= {f"self_attn.{x}_proj.bias": (rows[x],) for x in rows}
    if config.qk_norm:
        shapes |= {f"self_attn.{x}_norm.weight": (config.head_size,) for x in "qk"}
    return _of_layer(layer, shapes)


def follow_shapes(config: ModelConfig, layer: int) -> Shapes:
    """The parameters behind a layer's attention."""
    _refuse_plain_mlp(config)
    shapes: Shapes = {
        "self_attn.o_proj.weight": (config.hidden, config.heads * config.head_size),
        "post_attention_layernorm.weight": (config.hidden,),
        "mlp.gate_proj.weight": (config.ffn, config.hidden),
        "mlp.up_proj.weight": (config.ffn, config.hidden),
        "mlp.down_proj.weight": (config.hidden, config.ffn),
    }
    return _of_layer(layer, shapes)


def between_shapes(config: ModelConfig, number: int) -> Shapes:
    """The parameters between two attentions: behind one, and in front of the next."""
    shapes = follow_shapes(config, number - 1) if number else {}
    return shapes | (lead_shapes(config, number) if number < config.layers else {})


def _of_layer(layer: int, shapes: Shapes) -> Shapes:
    prefix = layer_prefix(layer)
    return {prefix + name: shape for name, shape in shapes.items()}


def elements(shapes: Shapes) -> int:
    """Elements of all these parameters together."""
    return sum(prod(shape) for shape in shapes.values())


def _refuse_plain_mlp(config: ModelConfig) -> None:
    if not config.gated:
        raise ShapeError(
            "a model with a plain MLP (gated is False) can be priced, but not run",
            hint="layers that run have a gated MLP (SwiGLU): leave gated at True",
        )
