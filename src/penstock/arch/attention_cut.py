"""What travels where a model is cut at its attention, which may run on another device.

A layer's attention needs no weights of its own, so only its input and its output travel; the
layer's input (the residual) goes along with both. There are two ways to give attention its input:

    heads      queries, keys and values: (a + 2 g) d elements of each token
    weights    the normed input, h elements of each token, and the weights that make queries, keys
               and values of it; their gradient comes back. Less where sequences are long.

Both ways the output of attention is a d elements of each token.
"""

from collections.abc import Sequence
from itertools import dropwhile, takewhile
from typing import NamedTuple

from penstock.arch.config import ModelConfig
from penstock.arch.layers.parameter import Parameter

HEADS, WEIGHTS = "heads", "weights"


class Crossing(NamedTuple):
    """What goes over one boundary between stages, in elements."""

    weights: int = 0
    """In front of everything, whatever the number of tokens."""
    features: int = 0
    """Of every token that a rank has inside a block."""
    rows: int = 1
    """How often h elements of every token that it hands on."""

    def elements(self, hidden: int, tokens: int, handed: int) -> int:
        """Of so many tokens inside a block, and so many that are handed on."""
        return self.weights + tokens * self.features + handed * self.rows * hidden


WHOLE_LAYERS = Crossing()
"""Between stages of whole layers: the output of a layer."""


def crossings(config: ModelConfig, to_attention: str) -> tuple[Crossing, Crossing]:
    """What goes to attention and what comes from it, of a rank with the matrices of `config`."""
    queries, keys = config.attention.query_width, config.attention.key_width
    back = Crossing(features=queries)
    if to_attention == WEIGHTS:
        projection = sum(each.elements for each in projection_parameters(config))
        return Crossing(weights=projection, rows=2), back
    return Crossing(features=queries + 2 * keys), back


def front_parameters(config: ModelConfig) -> tuple[Parameter, ...]:
    """The parameters of a layer that are used in front of the part without weights."""
    return tuple(takewhile(_in_front, _of_layer(config)))


def rest_parameters(config: ModelConfig) -> tuple[Parameter, ...]:
    """Those behind it."""
    return tuple(dropwhile(_in_front, _of_layer(config)))


def projection_parameters(config: ModelConfig) -> tuple[Parameter, ...]:
    """Those in front of it that are attention's: they make queries, keys and values."""
    own = {each.name for each in config.attention.parameters}
    return tuple(each for each in front_parameters(config) if each.name in own)


def _of_layer(config: ModelConfig) -> Sequence[Parameter]:
    return [each for record in config.layer_records for each in record.parameters]


def _in_front(parameter: Parameter) -> bool:
    return not parameter.behind_attention
