"""A layer without attention on ranks that share its matrices, forward and backward."""

from typing import NamedTuple

import torch
from torch import Tensor

from model.parallel.threads import ThreadGroup, run_ranks
from penstock.arch.config import ModelConfig
from penstock.arch.parameter_layout import ParameterLayout, lay_out
from penstock.arch.parameters import layer_parameters, layer_prefix
from penstock.model.layers.linear import Queue, add_products
from penstock.model.layers.mlp_block import MlpBlock
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import Replicated

Named = dict[str, Tensor]


class Ran(NamedTuple):
    """What a layer gave, and its gradients by name."""

    out: Tensor
    dx: Tensor
    gradients: Named


def run_layer(
    model: ModelConfig, layer: int, tensors: Named, x: Tensor, dz: Tensor, ranks: int
) -> Ran:
    """The layer on so many ranks; parts of gradients are put together again."""

    def work(group: ThreadGroup) -> Work[tuple[Tensor, Tensor, Named, ParameterLayout]]:
        cell = SINGLE_RANK if ranks == 1 else Cell(tensor=group, tokens=Replicated(group))
        own = lay_out(layer_parameters(model, layer), group.index, ranks)
        block = MlpBlock(model.share(group.index, ranks) if ranks > 1 else model, cell)
        flat, grad = (
            torch.zeros(own.elements, dtype=x.dtype),
            torch.zeros(own.elements, dtype=x.dtype),
        )
        for name, part in own.parts.items():
            cut = tensors[name].narrow(part.axis, part.start, part.end - part.start)
            flat[part.offset : part.stop] = cut.flatten()
        views = [Views(own, each) for each in (flat, grad)]
        weights, gradients = (block.views(each, layer_prefix(layer)) for each in views)
        out, saved = yield from block.forward(weights, x.clone(), len(x))
        queue = Queue()
        dx = yield from block.backward(weights, gradients, saved, dz.clone(), queue)
        add_products(views[1].matrices, queue)
        found = {
            name: grad[part.offset : part.stop].view(part.local_shape)
            for name, part in own.parts.items()
        }
        return out, dx, found, own

    found = run_ranks(ranks, work)
    whole = {name: torch.zeros_like(tensors[name]) for name in found[0][2]}
    for _, _, parts, own in found:
        for name, tensor in parts.items():
            part = own.parts[name]
            whole[name].narrow(part.axis, part.start, part.end - part.start).copy_(tensor)
    return Ran(found[0][0], found[0][1], whole)
