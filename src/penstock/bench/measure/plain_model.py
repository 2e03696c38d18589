"""What PyTorch's pipeline runtime is given in comparisons: equal weights, an equal loss."""

import torch
from torch import Tensor
from torch.nn import functional

from penstock.arch.config import ModelConfig
from penstock.model.io.initial_weights import initialise
from penstock.verify.plain_decoder import PlainStage, fused_attention, stored_name


def plain_stage(config: ModelConfig, layers: range, length: int) -> PlainStage:
    """Some layers of the plain decoder with the initial weights that our stages have."""
    stage = PlainStage(config, layers, length, fused_attention).float()
    with torch.no_grad():
        for name, parameter in stage.named_parameters():
            initialise(config, stored_name(name), parameter, seed=0)
    return stage


def summed_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
