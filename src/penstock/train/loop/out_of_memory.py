"""A GPU that has no memory for the next tensor: said with its numbers, in place of a trace.

The allocator's own words end with advice about fragmentation, which is hardly ever the reason. What
helps is to know how much a rank held and which settings need less. Whoever reports an error adds
the rank and the op.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from penstock.errors import RunError

ASKED = re.compile(r"Tried to allocate ([\d.]+ [KMG]iB)")


@contextmanager
def lack_of_memory_in_words(device: torch.device) -> Iterator[None]:
    """In the block, a GPU without memory is an error that says how much there is."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise RunError(
            f"{device} has no memory left: {_amounts(error, device)}",
            hint="more pipeline.slices, pipeline.recompute or pipeline.offload need less, and so "
            "do more pipeline.devices and mesh.shard; `penstock estimate` says what each needs",
        ) from error


def _amounts(error: BaseException, device: torch.device) -> str:
    """What was asked for, and what there is."""
    asked = ASKED.search(str(error))
    words = f"a tensor of {asked[1]} was asked for" if asked else "a tensor was asked for"
    if device.type != "cuda":
        return words
    free, total = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_allocated(device)
    shares = (f"{size / 2**30:.2f}" for size in (held, total, free))
    return "{}, {} of {} GiB are tensors of this rank, and {} GiB are free".format(words, *shares)
