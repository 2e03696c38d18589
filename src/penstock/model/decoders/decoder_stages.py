"""A decoder of `transformers` cut into stages, each of which is the model with some of its layers.

    stages = decoder_stages(AutoModelForCausalLM.from_pretrained(folder), 4)

Layers and weights are the model's own, under the names that they have in it: what stages train,
the model has learned, and their state dictionaries together are the model's. Whether the cut is
right is not believed: the stages are run one after the other, and have to give the logits of the
whole model.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, ModuleList

from penstock.arch.layer_split import split_layers
from penstock.errors import ShapeError
from penstock.model.decoders.absent import AbsentLayer, EntryLayer, ExitLayer, absent_module
from penstock.model.decoders.decoder_parts import (
    DecoderParts,
    decoder_parts,
    trial_logits,
    trial_tokens,
)

WEIGHT_SEED = 0
"""Of initial weights where a folder has none: every rank makes the same."""


class DecoderSection(Module):
    """Some layers of a decoder; the first stage takes tokens, the last one gives logits."""

    def __init__(self, model: Module, layers: range, parts: DecoderParts) -> None:
        super().__init__()
        self.layers, self.first, self.last = layers, not layers.start, layers.stop == parts.depth
        self._entry = None if self.first else EntryLayer(parts.width)
        self._exit = None if self.last else ExitLayer(parts.width)
        self.model = _with(model, self._changes(model, parts))

    def _changes(self, model: Module, parts: DecoderParts) -> dict[str, Module]:
        """What is another one in this stage, by its name in the whole model."""
        layers: Any = model.get_submodule(parts.layers)
        own = [
            layer if number in self.layers else AbsentLayer(parts.width)
            for number, layer in enumerate(layers)
        ]
        if self._entry is not None:
            own[self.layers.start - 1] = self._entry
        if self._exit is not None:
            own[self.layers.stop] = self._exit
        others = (() if self.first else parts.before) + (() if self.last else parts.after)
        return {parts.layers: ModuleList(own)} | {
            name: absent_module(model.get_submodule(name)) for name in others
        }

    def forward(self, x: Tensor, **keywords: Any) -> Tensor:
        """Logits of the last stage, else hidden states; keywords go to the model: `position_ids`
        begins at 0 with each document of a row, `attention_mask` is 0 where a row is padded."""
        given = {"input_ids" if self.first else "inputs_embeds": x}
        if self._entry is not None:
            self._entry.received = x
        model: Any = self.model
        run = model if self.last else model.base_model
        out = run(**given, **keywords, use_cache=False)
        if self._exit is None:
            logits: Tensor = out.logits
            return logits
        left, self._exit.left = self._exit.left, None
        if left is None or (self._entry is not None and self._entry.received is not None):
            raise ShapeError(
                f"{type(model).__name__} has left out a layer of this stage",
                hint="set layerdrop to 0 in its configuration",
            )
        return left

    def extra_repr(self) -> str:
        return f"layers {self.layers.start} to {self.layers.stop - 1}"


def decoder_stages(
    model: Any, stages: int | Sequence[int], *, keywords: Mapping[str, Any] | None = None
) -> list[Module]:
    """The stages of a decoder: a model of `transformers`, or a folder with its configuration and
    weights; random weights where it has none, with `keywords` for from_pretrained or from_config.

    `stages` is their number, or how many layers each of them has.
    """
    whole = _loaded(model, keywords or {}) if isinstance(model, str | Path) else model
    _refuse_router_loss(whole)
    parts = decoder_parts(whole)
    counts = () if isinstance(stages, int) else tuple(stages)
    number = stages if isinstance(stages, int) else len(stages)
    ranges = split_layers(parts.depth, number, counts)
    if not all(ranges):
        raise ShapeError(
            f"{parts.depth} layers of {type(whole).__name__} do not fill {number} stages",
            hint=f"take at most {parts.depth} stages, with one layer or more in each",
        )
    found: list[Module] = [DecoderSection(whole, layers, parts) for layers in ranges]
    _refuse_other_logits(whole, found)
    return found


def _refuse_router_loss(model: Any) -> None:
    """Refuse a decoder that is told to add a loss of its routers: that is one of all layers
    together, and each stage has some of them. Leaving it out would change the model unseen."""
    config = getattr(model, "config", None)
    weight = getattr(config, "router_aux_loss_coef", 0) or 0
    if getattr(config, "output_router_logits", False) and weight:
        raise ShapeError(
            f"{type(model).__name__} adds an auxiliary loss of its routers "
            f"(output_router_logits, router_aux_loss_coef {weight}), which stages of its layers "
            "do not have",
            hint="set output_router_logits = False in its configuration to train without it, or "
            "take penstock train, where the family has it (docs/concepts/experts.md)",
        )


def _with(module: Module, changes: Mapping[str, Module]) -> Module:
    """A copy of a module in which some modules inside are other ones; all else is shared."""
    copied: Module = module.__new__(type(module))
    copied.__dict__ = dict(module.__dict__)
    inside = dict(module._modules)
    copied.__dict__["_modules"] = inside
    for name, child in module._modules.items():
        deeper = {
            key.removeprefix(f"{name}."): new
            for key, new in changes.items()
            if key.startswith(f"{name}.")
        }
        if name in changes:
            inside[name] = changes[name]
        elif deeper and child is not None:
            inside[name] = _with(child, deeper)
    return copied


def _refuse_other_logits(model: Any, stages: Sequence[Module]) -> None:
    """Refuse stages that do not make of a few tokens what the whole model makes of them."""
    x = tokens = trial_tokens(model)
    wanted, training = trial_logits(model, tokens), model.training
    try:
        with torch.no_grad(), torch.random.fork_rng():
            for stage in stages:
                x = stage.eval()(x)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise _cannot(model, f"{type(error).__name__}: {error}") from error
    finally:
        for stage in stages:
            stage.train(training)
    if not torch.allclose(x, wanted, rtol=1e-4, atol=1e-5):
        raise _cannot(model, f"logits differ by up to {float((x - wanted).abs().max()):.2g}")


def _cannot(model: Module, why: str) -> ShapeError:
    return ShapeError(
        f"{type(model).__name__} does not run as stages of its own layers: {why}",
        hint="write its stages as modules of your own for penstock.pipeline "
        "(docs/howto/own-modules.md)",
    )


def _loaded(folder: str | Path, keywords: Mapping[str, Any]) -> Any:
    """The model of a folder."""
    try:
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError:
        raise ShapeError(
            "a folder of a decoder is read by transformers, which is not installed",
            hint="pip install transformers",
        ) from None
    auto: Any = AutoModelForCausalLM
    try:
        if any(Path(folder).glob("*.safetensors")) or any(Path(folder).glob("*.bin")):
            return auto.from_pretrained(folder, **keywords)
        config = AutoConfig.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise ShapeError(
            f"transformers cannot read {folder}: {str(error).splitlines()[0]}",
            hint="give a folder with the config.json of a decoder",
        ) from error
    with torch.random.fork_rng():
        torch.manual_seed(WEIGHT_SEED)
        return auto.from_config(config, **keywords)
