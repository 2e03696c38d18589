"""What a forward saves is what the records of its layers say, to the byte, for every family."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from loops import each
from model.samples import cut, microbatch_of, stages_of, tiny
from penstock.arch.presets import model
from penstock.model.stages.decoder import StageSaved
from penstock.verify.members import small_member

pytestmark = pytest.mark.torch

LENGTH = 11
FAMILIES = (
    *("llama3-8b", "mistral-7b-v0.1", "qwen2.5-7b", "qwen3-8b", "gemma2-9b", "gemma3-12b"),
    *("phi-4", "olmo2-7b", "olmo2-32b", "tiny-fused"),
)


def tensors_in(saved: Any) -> Iterator[Tensor]:
    if isinstance(saved, Tensor):
        yield saved
    elif isinstance(saved, (tuple, list)):
        for inner in saved:
            yield from tensors_in(inner)


def held_bytes(act: StageSaved) -> int:
    """Bytes of the memory behind what the layers keep; a number for each token is not counted."""
    kept = [tensor for tensor in tensors_in(act.layers) if tensor.shape[-1] != 1]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in kept}
    return sum(storage.nbytes() for storage in storages.values())


@each("name", FAMILIES)
def test_a_forward_keeps_what_the_records_say(name: str) -> None:
    config = replace(small_member(model(name), tiny(3)), element_bytes=4)
    (held,) = stages_of(config, [config.layers], LENGTH, torch.float32)
    (piece,) = cut(microbatch_of(((0,),), LENGTH), (LENGTH,))
    act = held.forward(piece, None, None)[1]
    assert held_bytes(act) == LENGTH * (config.total("saved_bytes") + config.total("kv_bytes"))


@each("name", FAMILIES)
def test_what_waits_for_the_weight_gradient_is_what_the_records_say(name: str) -> None:
    config = replace(small_member(model(name), tiny(3)), element_bytes=4)
    (held,) = stages_of(config, [config.layers], LENGTH, torch.float32)
    (piece,) = cut(microbatch_of(((0,),), LENGTH), (LENGTH,))
    act = held.forward(piece, None, None)[1]
    stash = held.input_gradient(piece, act, None, None, None)[2]
    waiting = [tensor for product in stash for tensor in (product.x, product.dy)]
    assert sum(tensor.nbytes for tensor in waiting) == LENGTH * config.total("stash_bytes")
