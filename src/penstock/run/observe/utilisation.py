"""How well a step uses its devices: model FLOP utilisation, and the bubble as it was measured.

Utilisation is the FLOPs that the model needs over what the devices could have done.
Work that is done twice (recomputation, logits made again in the backward) does not count twice, so
that the number can be compared between schedules. Tokens attend inside their own document, and
within the window of the model where it has one: no other pair counts, since none is needed.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch

from penstock.arch.attention_rule import seen_half_pairs
from penstock.arch.config import ModelConfig
from penstock.cost.hardware import HARDWARE
from penstock.data.batch import Microbatch
from penstock.run.process.environment import read_place


def model_flops(model: ModelConfig, documents: Sequence[int]) -> int:
    """FLOPs of one training step on documents of these lengths: three forwards, without the weight
    gradients of what is frozen."""
    near = model.windowed(range(model.layers))
    each = ((model.layers_met(2) - near, None), (near, model.window))
    half_pairs = round(
        sum(
            layers * seen_half_pairs(length, window)
            for layers, window in each
            for length in documents
        )
    )
    products = model.step_flops_per_token * sum(documents)
    return products + 3 * (model.attending_kind.pair_flops * half_pairs // 2)


def document_lengths(batch: Sequence[Microbatch]) -> list[int]:
    """Tokens of each document of a batch; one that goes on in another sequence counts as two."""
    return [
        end - start
        for microbatch in batch
        for starts in microbatch.documents
        for start, end in pairwise((*starts, microbatch.length))
    ]


def idle_share(
    busy: Sequence[float], spans: Sequence[float], pipelines: Sequence[Sequence[int]]
) -> float:
    """The measured bubble: idle time of a pipeline's ranks over the longest of their lanes.

    Both are seconds of every rank, of its ops and from its first op to its last. What a rank does
    beside its lane (reading its batch, adding up gradients, updating weights) is no bubble. A
    pipeline is a rank of every device; the share is the mean over all of them.

    >>> idle_share([3.0, 2.0], [4.0, 3.0], [[0, 1]])
    0.375
    """
    lanes = [max(spans[rank] for rank in ranks) * len(ranks) for ranks in pipelines]
    work = [sum(busy[rank] for rank in ranks) for ranks in pipelines]
    shares = [1 - part / whole if whole else 0.0 for part, whole in zip(work, lanes)]
    return max(0.0, sum(shares) / len(shares))


def gpu_count() -> int:
    """GPUs of the whole run: of each machine as many as it has ranks for."""
    here = read_place()
    machines = max(1, here.world // here.local_world)
    return machines * max(1, min(here.local_world, torch.cuda.device_count()))


def peak_flops(device: torch.device) -> int | None:
    """What a device can do in a second at best, where its kind is known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device).lower()
    return next((hw.linear for key, hw in HARDWARE.items() if key in name), None)
