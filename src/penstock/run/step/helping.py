"""How a rank helps other devices with attention that they lend."""

import torch

from penstock.arch.dealing import deal_heads
from penstock.model.attention.helping import Helping
from penstock.model.attention.lent_messages import LentHeads
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.run.program.layout import Layout
from penstock.run.step.stages import tensor_index


def helping_of(layout: Layout, device: torch.device, cell: Cell = SINGLE_RANK) -> Helping:
    """With the heads that the rank at the same place in the other cell has."""
    model = layout.model_of(tensor_index(cell))
    attending = map(model.attending, layout.split)
    layers = tuple([model.attention_rule(layer) for layer in own] for own in attending)
    heads, kv_heads = model.heads, model.kv_heads
    if cell.ulysses is not None:
        share = deal_heads(heads, kv_heads, cell.ulysses.index, cell.ulysses.size)
        heads, kv_heads = len(share.queries), len(share.keys)
    return Helping(layers, LentHeads(heads, kv_heads, model.head_size, layout.dtype), device)
