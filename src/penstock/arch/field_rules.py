"""Which values the fields of a model may have: a file or a table may state others."""

from typing import Any

from penstock.arch.blocks import LayerBlock
from penstock.arch.layers.attention import NORM_SPANS
from penstock.arch.layers.gated_mlp import ACTIVATIONS
from penstock.arch.layers.norm import NORM_PLACES
from penstock.arch.limits import LARGEST_OF_MODEL, MOST_MODEL_LAYERS, refuse_count, refuse_number
from penstock.arch.lora import Lora
from penstock.arch.mixture import ExpertMixture
from penstock.arch.rope_scaling import RopeScaling
from penstock.arch.subsampling import Subsampling
from penstock.errors import ShapeError, nearest, shown


def refuse_field(name: str, value: Any) -> None:
    """Refuse a value that a field of that name cannot have."""
    if name in _OPTIONAL and value is None:
        return
    if name in _NUMBERS:
        refuse_number(name, value)
    elif name in _RECORDS:
        kind = _RECORDS[name]
        _refuse_unless(isinstance(value, kind), name, value, f"give a {kind.__name__} or None")
    elif name == "window_pattern":
        good = isinstance(value, tuple) and all(isinstance(each, bool) for each in value)
        _refuse_unless(good, name, value, "give a list of true and false")
    elif name == "blocks":
        good = isinstance(value, tuple) and all(isinstance(each, LayerBlock) for each in value)
        _refuse_unless(good, name, shown(value), "give a LayerBlock for each layer")
    elif name in _CHOICES:
        known = list(_CHOICES[name])
        if value not in known:  # the nearest of them is looked for only then
            _refuse_unless(False, name, shown(value), nearest(str(value), known))
    elif name in _SWITCHES:
        _refuse_unless(isinstance(value, bool), name, value, "give true or false")
    else:
        refuse_count(name, value, MOST_MODEL_LAYERS if name == "layers" else LARGEST_OF_MODEL)


def _refuse_unless(good: bool, name: str, value: Any, hint: str) -> None:
    if not good:
        raise ShapeError(f"{name} is {value}", hint=hint)


_SWITCHES = (
    *("gated", "tied", "qkv_bias", "qk_norm", "norm_adds_one", "scaled_embedding"),
    "fused_files",
)
_NUMBERS = (
    *("rope_theta", "norm_epsilon", "local_rope_theta", "score_cap", "logit_cap"),
    "query_scalar",
)
_CHOICES = {"qk_norm_over": NORM_SPANS, "activation": ACTIVATIONS, "norms": NORM_PLACES}
_RECORDS = {
    "rope_scaling": RopeScaling,
    "lora": Lora,
    "mixture": ExpertMixture,
    "subsampling": Subsampling,
}
_OPTIONAL = (
    *(*_RECORDS, "window", "rotary_size", "local_rope_theta", "score_cap", "logit_cap"),
    "query_scalar",
)
