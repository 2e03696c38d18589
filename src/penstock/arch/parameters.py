"""Every parameter of a model by its full name: the records' parameters, layer by layer.

Stages allocate by this list, checkpoints and exported files are checked against it. The names are
those of Hugging Face checkpoints, so that nothing has to be translated on the way in or out.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import dropwhile, takewhile
from math import prod
from types import MappingProxyType

from penstock.arch.config import ModelConfig
from penstock.arch.dealing import deal
from penstock.arch.layers import embedding, lm_head
from penstock.arch.layers.parameter import Parameter, TensorShape
from penstock.arch.layers.record import LayerRecord
from penstock.arch.parameter_layout import ParameterLayout, lay_out

Shapes = dict[str, TensorShape]
Parameters = dict[str, Parameter]

EMBEDDING, HEAD = embedding.EMBEDDING_NAME, lm_head.HEAD_NAME
LAST_NORM = "model.norm.weight"


def layer_prefix(layer: int) -> str:
    """What the names of one layer's parameters begin with.

    >>> layer_prefix(3)
    'model.layers.3.'
    """
    return f"model.layers.{layer}."


@lru_cache(maxsize=16)
def model_parameters(config: ModelConfig) -> Mapping[str, Parameter]:
    """The parameters of the whole model along its depth; a tied head is the embedding."""
    found = stage_parameters(config, range(config.layers), 0, 1)
    if config.tied:
        del found[HEAD]
    return MappingProxyType(found)


def expected_shapes(config: ModelConfig) -> Shapes:
    """The shapes of the whole model along its depth; a tied head is the embedding.

    >>> len(expected_shapes(ModelConfig(2, 8, 24, 2, 1, 4, 10)))
    21
    """
    return shapes_of(model_parameters(config))


def trained_names(config: ModelConfig) -> list[str]:
    """Names of the parameters that are trained, along the depth of the model."""
    return [name for name, each in model_parameters(config).items() if each.trained]


def stage_parameters(config: ModelConfig, layers: range, stage: int, stages: int) -> Parameters:
    """The parameters of a stage of these layers; the last one has a head of its own, tied or
    not."""
    found = _named("", config.input_records) if stage == 0 else {}
    for layer in layers:
        found |= _named("", config.opening_records(layer))
        found |= layer_parameters(config, layer)
        found |= _named("", config.closing_records(layer))
    return found | (_named("", config.output_records) if stage == stages - 1 else {})


def own_experts(parameters: Mapping[str, Parameter], index: int, of: int) -> Parameters:
    """The parameters of a stage on replica `index` of `of` that share the experts of a layer: all
    but the experts of others."""
    if of == 1:
        return dict(parameters)
    numbers = [each.expert for each in parameters.values() if each.expert is not None]
    own = deal(1 + max(numbers, default=0), index, of)
    return {
        name: each if each.expert is None else replace(each, dealt_over=of)
        for name, each in parameters.items()
        if each.expert is None or each.expert in own
    }


def stage_layout(
    config: ModelConfig, parameters: Mapping[str, Parameter], index: int = 0, of: int = 1
) -> ParameterLayout:
    """Where the parameters of a stage lie on rank `index` of `of` that share the matrices; a tied
    head beside its embedding has the values of that."""
    found = lay_out(parameters, index, of)
    both = config.tied and EMBEDDING in found and HEAD in found
    return found.sharing({HEAD: EMBEDDING}) if both else found


def layers_on_shards(embed: str, loss: str) -> tuple[str, ...]:
    """Vocabulary layers that are cut into a shard for each device, by who computes the first input
    and the last gradient of a pipeline: stages (F), or passes over shards (E; S or T).

    >>> layers_on_shards(embed="E", loss="F")
    ('model.embed_tokens.weight',)
    """
    found = {EMBEDDING: embed == "E", HEAD: loss in ("S", "T")}
    return tuple(name for name, sharded in found.items() if sharded)


def shard_layout(
    config: ModelConfig, names: Collection[str], device: range, tensor: range
) -> ParameterLayout:
    """Where a shard of the vocabulary layers `names` lies: on device `device.start` of
    `device.stop`, and of those that share its matrices number `tensor.start` of `tensor.stop`. It
    has the same words of all of them."""
    every = _named("", (*config.input_records, *config.output_records))
    index, of = device.start * tensor.stop + tensor.start, device.stop * tensor.stop
    chosen = {name: parameter for name, parameter in every.items() if name in names}
    found = stage_layout(config, chosen, index, of)
    alone = tuple(range(each, each + 1) for each in range(tensor.stop))
    return found.held_by(alone[tensor.start], alone)


def layer_parameters(config: ModelConfig, layer: int) -> Parameters:
    """The parameters of one layer, in the order in which a forward meets them."""
    return _named(layer_prefix(layer), config.like(layer).layer_records)


def between_parameters(config: ModelConfig, number: int) -> Parameters:
    """The parameters between two attentions: behind that of layer `number` - 1, and in front of
    that of layer `number`; the embedding before the first, the output layer behind the last."""
    found = _named("", config.input_records) if number == 0 else {}
    if number > 0:
        layer = layer_parameters(config, number - 1).items()
        found |= dict(dropwhile(_in_front, layer))
    if number < config.layers:
        return found | dict(takewhile(_in_front, layer_parameters(config, number).items()))
    return found | _named("", config.output_records)


def shapes_of(parameters: Mapping[str, Parameter]) -> Shapes:
    return {name: parameter.shape for name, parameter in parameters.items()}


def elements(shapes: Shapes) -> int:
    """Elements of all these parameters together."""
    return sum(prod(shape) for shape in shapes.values())


def refuse_running(config: ModelConfig) -> None:
    """Refuse a model with layers that have no arithmetic: they can be estimated, and not run."""
    for kind in config.kinds:
        for record in kind.layer_records:
            record.refuse_running()


def _named(prefix: str, records: Sequence[LayerRecord]) -> Parameters:
    """The parameters of some layers."""
    return {prefix + each.name: each for record in records for each in record.parameters}


def _in_front(item: tuple[str, Parameter]) -> bool:
    return not item[1].behind_attention
