"""Model FLOP utilisation: the FLOPs that the model needs over what the devices could have done.

Work that is done twice (recomputation, logits made again in the backward) does not count twice, so
that the number can be compared between schedules.
"""

from collections.abc import Sequence

import torch

from penstock.cost.architecture import ModelConfig
from penstock.cost.hardware import HARDWARE
from penstock.run.place import place


def model_flops(model: ModelConfig, lengths: Sequence[int]) -> int:
    """FLOPs of one training step on sequences of these lengths: three forwards."""
    return sum(
        3 * (model.flops_per_token * length + model.flops_per_pair * length**2 // 2)
        for length in lengths
    )


def gpu_count() -> int:
    """GPUs of the whole run: of each machine as many as it has ranks for."""
    here = place()
    machines = max(1, here.world // here.local_world)
    return machines * max(1, min(here.local_world, torch.cuda.device_count()))


def peak_flops(device: torch.device) -> int | None:
    """What a device can do in a second at best, where its kind is known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device).lower()
    return next((hw.linear for key, hw in HARDWARE.items() if key in name), None)
