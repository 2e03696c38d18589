"""What is done to a model: attentions that are removed, and runs of MLPs that are fused.

As text, with layers that count from 0 and ranges with both ends:

    remove=3-8 fuse=3-5,6-7 norm=last multiple=64       or with ; in place of spaces

Layers are those of the model that is given; what stays keeps its order.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, get_args

from penstock.arch.blocks import LayerBlock
from penstock.arch.config import ModelConfig
from penstock.arch.layers.norm import BEFORE
from penstock.arch.limits import LARGEST_OF_MODEL, MOST_MODEL_LAYERS
from penstock.errors import ShapeError, nearest, shown

NormMode = Literal["last", "own"]
NORM_MODES: tuple[NormMode, ...] = get_args(NormMode)


@dataclass(frozen=True)
class FusionPlan:
    """Attentions to remove and runs to fuse."""

    remove: tuple[int, ...] = ()
    """Layers whose attention goes, with the norm in front of it."""
    fuse: tuple[range, ...] = ()
    """Runs of layers without attention, each of which becomes one."""
    norm: NormMode = "last"
    """Whose norm a run has: that of its `last` layer for all, or of each its `own`, multiplied into
    its matrices."""
    multiple: int = 1
    """What widths of fused MLPs are rounded up to."""

    def __str__(self) -> str:
        """As `read_fusion_plan` reads it."""
        words = {
            "remove": ",".join(map(_written, _ranges(self.remove))),
            "fuse": ",".join(map(_written, self.fuse)),
            "norm": self.norm,
            "multiple": "" if self.multiple == 1 else str(self.multiple),
        }
        return " ".join(f"{key}={value}" for key, value in words.items() if value)


def read_fusion_plan(text: str) -> FusionPlan:
    """A plan of its text.

    >>> str(read_fusion_plan("remove=1-3,6 fuse=1-2"))
    'remove=1-3,6 fuse=1-2 norm=last'
    """
    given: dict[str, Any] = {}
    for word in text.replace(";", " ").split():
        key, equals, value = word.partition("=")
        if key not in _READ or not equals or key in given:
            raise ShapeError(
                f"the plan has {shown(word)}",
                hint="a plan is such as 'remove=1-3 fuse=1-2 norm=last'; "
                f"keys are {', '.join(_READ)}, each once",
            )
        given[key] = _READ[key](key, value)
    return FusionPlan(**given)


def _layers(key: str, text: str) -> tuple[range, ...]:
    found = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = (first, last if dash else first)
        if not all(
            end.isascii() and end.isdecimal() and int(end) < MOST_MODEL_LAYERS for end in ends
        ):
            raise ShapeError(
                f"the plan has {key}={shown(text)}", hint="give layers and ranges such as 1-3,6"
            )
        found.append(range(int(ends[0]), int(ends[1]) + 1))
    return tuple(found)


def _mode(key: str, text: str) -> NormMode:
    for mode in NORM_MODES:
        if mode == text:
            return mode
    raise ShapeError(f"the plan has {key}={shown(text)}", hint=nearest(text, list(NORM_MODES)))


def _count(key: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) < LARGEST_OF_MODEL:
        raise ShapeError(f"the plan has {key}={shown(text)}", hint="give a whole number above 0")
    return int(text)


_READ = {
    "remove": lambda key, text: tuple(at for own in _layers(key, text) for at in own),
    "fuse": _layers,
    "norm": _mode,
    "multiple": _count,
}


def _ranges(layers: Iterable[int]) -> list[range]:
    """Layers that follow each other as one range."""
    found: list[range] = []
    for layer in sorted(layers):
        if found and found[-1].stop == layer:
            found[-1] = range(found[-1].start, layer + 1)
        else:
            found.append(range(layer, layer + 1))
    return found


def _written(layers: range) -> str:
    first, last = layers.start, layers.stop - 1
    return str(first) if first == last else f"{first}-{last}"


def without_attention(model: ModelConfig, layers: Iterable[int]) -> ModelConfig:
    """The model without the attention of some layers; what it adds to the residual is gone."""
    gone = {*layers}
    _refuse_unknown(model, gone)
    blocks = (model.block(layer) for layer in range(model.layers))
    return replace(
        model,
        blocks=tuple(
            replace(block, attention=block.attention and layer not in gone)
            for layer, block in enumerate(blocks)
        ),
    )


def fused_model(model: ModelConfig, plan: FusionPlan) -> ModelConfig:
    """The model that a plan makes of one."""
    before = without_attention(model, plan.remove)
    sources = fused_sources(before, plan)
    blocks = tuple(_fused(before, own, plan.multiple) for own in sources)
    windows = tuple(model.has_window(own[-1]) for own in sources) if model.window_pattern else ()
    return replace(model, layers=len(sources), blocks=blocks, window_pattern=windows)


def fused_sources(model: ModelConfig, plan: FusionPlan) -> list[range]:
    """The layers of a model that each layer of the fused one is made of."""
    _refuse_runs(model, plan.fuse)
    starts = {own.start: own for own in plan.fuse}
    found: list[range] = []
    layer = 0
    while layer < model.layers:
        found.append(starts.get(layer, range(layer, layer + 1)))
        layer = found[-1].stop
    return found


def _fused(model: ModelConfig, layers: range, multiple: int) -> LayerBlock:
    if len(layers) == 1:
        return model.block(layers[0])
    widths = tuple(model.block(layer).ffn for layer in layers)
    whole = sum(widths)
    return LayerBlock(whole + -whole % multiple, False, widths)


def _refuse_unknown(model: ModelConfig, layers: Iterable[int]) -> None:
    if strange := sorted(layer for layer in layers if not 0 <= layer < model.layers):
        raise ShapeError(
            f"the plan speaks of layer {strange[0]}, but the model has {model.layers} layers",
            hint=f"layers count from 0 to {model.layers - 1}",
        )


def _refuse_runs(model: ModelConfig, runs: tuple[range, ...]) -> None:
    """Refuse runs that cannot be fused: across attention, of one layer, over each other."""
    for own in runs:
        _refuse_unknown(model, (own.start, own.stop - 1))
        if len(own) < 2:
            raise ShapeError(
                f"fuse={_written(own)} has {len(own)} layers", hint="a run has 2 layers or more"
            )
        if attending := model.attending(own):
            raise ShapeError(
                f"fuse={_written(own)}: layer {attending[0]} has attention",
                hint="MLPs are fused where no attention is between them: add it to remove=",
            )
        if twice := [layer for layer in own if model.block(layer).fused]:
            raise ShapeError(
                f"fuse={_written(own)}: layer {twice[0]} is fused already",
                hint="unfuse the model first, and fuse longer runs",
            )
    for one, other in pairwise(sorted(runs, key=lambda own: own.start)):
        if one.stop > other.start:
            raise ShapeError(
                f"fuse={_written(one)} and fuse={_written(other)} have layers in common",
                hint="give each layer to one run",
            )
    if runs and (model.norms != BEFORE or model.lora is not None):
        what = f"norms {model.norms} its blocks" if model.norms != BEFORE else "adapters of LoRA"
        raise ShapeError(
            f"MLPs of a model with {what} cannot be fused",
            hint="a sum of MLPs is one MLP where a norm before it is all that it has",
        )
