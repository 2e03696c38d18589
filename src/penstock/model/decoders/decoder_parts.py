"""Where the parts of a decoder stand that nobody has described: found by running it once.

Every decoder of `transformers` has a list of layers, but what is around it has other names in each
of them. So the model is run on a few tokens, and the order in which its modules are called tells
what belongs in front of the layers and what behind. A model that does more than hand one tensor
from layer to layer cannot be cut between layers, and is refused by name.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module, ModuleList

from penstock.errors import ShapeError
from penstock.model.stages.value_tree import leaves

TRIAL_TOKENS = 3


class DecoderParts(NamedTuple):
    """The dotted names of what a decoder consists of."""

    layers: str
    """Its list of layers."""
    depth: int
    """How many there are."""
    before: tuple[str, ...]
    """Modules with weights that are called in front of the first layer."""
    after: tuple[str, ...]
    """The same behind the last layer; also those that are never called."""
    width: int
    """Things that a layer gives: 0 for the hidden states alone, else those of a tuple."""


class _Call(NamedTuple):
    """A module that was called: its name, or the number of a layer."""

    name: str
    layer: int = -1


def decoder_parts(model: Module) -> DecoderParts:
    """The parts of a decoder, or the reason why it cannot be cut."""
    path, layers = _layer_list(model)
    outer = dict(_outer_modules(model, path))
    calls, widths = _called(model, layers, outer)
    if [call.layer for call in calls if call.layer >= 0] != [*range(len(layers))]:
        raise _refusal(model, "its layers are not called one after the other, each once")
    if len(widths) != 1:
        raise _refusal(model, "its layers give different numbers of things")
    order = [call.layer for call in calls]
    first, last = order.index(0), order.index(len(layers) - 1)
    before = {call.name for call in calls[:first] if call.name}
    between = {call.name for call in calls[first:last] if call.name}
    after = {call.name for call in calls[last:] if call.name}
    if twice := sorted(between | (before & after)):
        raise _refusal(model, f"{twice[0]} is used between its layers, or on both sides of them")
    behind = tuple(name for name in outer if name not in before)
    return DecoderParts(path, len(layers), tuple(n for n in outer if n in before), behind, *widths)


def _layer_list(model: Module) -> tuple[str, ModuleList]:
    """The list with as many layers as the configuration says; the first of them."""
    wanted = getattr(getattr(model, "config", None), "num_hidden_layers", None)
    for name, module in model.named_modules():
        if isinstance(module, ModuleList) and len(module) and len(module) == wanted:
            return name, module
    raise _refusal(model, f"it has no list of {wanted} layers (config.num_hidden_layers)")


def _outer_modules(model: Module, layers: str, prefix: str = "") -> Iterator[tuple[str, Module]]:
    """Modules with weights that neither are in the list of layers nor hold it."""
    for name, child in model.named_children():
        path = f"{prefix}{name}"
        if path == layers:
            continue
        if layers.startswith(f"{path}."):
            yield from _outer_modules(child, layers, f"{path}.")
        elif any(True for _ in child.parameters()):
            yield path, child
    if own := [name for name, _ in model.named_parameters(recurse=False)]:
        raise _refusal(model, f"its parameter {prefix}{own[0]} belongs to no module of its own")


def _called(
    model: Module, layers: ModuleList, outer: dict[str, Module]
) -> tuple[list[_Call], set[int]]:
    """The modules in the order in which a run calls them, and how many things layers give."""
    calls: list[_Call] = []
    widths: set[int] = set()

    def of_layer(number: int) -> Any:
        def note(module: Module, args: Any, kwargs: Any, out: Any) -> None:
            calls.append(_Call("", number))
            widths.add(len(out) if isinstance(out, tuple) else 0)
            if number and (beside := _moving(args, kwargs)):
                raise _refusal(
                    model, f"layer {number} is given {beside} in addition to the hidden states"
                )

        return note

    def of_part(name: str) -> Any:
        return lambda module, args, kwargs, out: calls.append(_Call(name))

    with ExitStack() as stack:
        for number, layer in enumerate(layers):
            stack.enter_context(_hooked(layer, of_layer(number)))
        for name, module in outer.items():
            stack.enter_context(_hooked(module, of_part(name)))
        trial_logits(model, trial_tokens(model))
    return calls, widths


def _moving(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What else reaches a layer and has gradients: it would have to move between stages too."""
    named = [*((f"argument {n}", a) for n, a in enumerate(args)), *kwargs.items()]
    hidden = "hidden_states" if "hidden_states" in kwargs else "argument 0"
    for name, value in named:
        tensors = [leaf for leaf in leaves(value) if isinstance(leaf, Tensor)]
        if name != hidden and any(tensor.requires_grad for tensor in tensors):
            return str(name)
    return ""


@contextmanager
def _hooked(module: Module, note: Any) -> Iterator[None]:
    handle = module.register_forward_hook(note, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def trial_tokens(model: Module, count: int = TRIAL_TOKENS) -> Tensor:
    """A few words that the model knows, none of which stands for padding."""
    config: Any = model.config
    words = [n for n in range(int(config.vocab_size)) if n != getattr(config, "pad_token_id", None)]
    device = next(model.parameters()).device
    return torch.tensor([[words[n % len(words)] for n in range(1, count + 1)]], device=device)


def trial_logits(model: Any, tokens: Tensor) -> Tensor:
    """What the whole model makes of some words, without dropout and without a trace."""
    training = [module for module in model.modules() if module.training]
    try:
        with torch.random.fork_rng(), torch.enable_grad():
            logits: Tensor = model.eval()(input_ids=tokens, use_cache=False).logits
    finally:
        for module in training:
            module.training = True
    return logits.detach()


def _refusal(model: Module, why: str) -> ShapeError:
    return ShapeError(
        f"{type(model).__name__} cannot be cut between its layers: {why}",
        hint="write its stages as modules of your own for penstock.pipeline (docs/howto/"
        "own-modules.md)",
    )
