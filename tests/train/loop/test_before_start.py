"""What a run is predicted to hold before it starts."""

import pytest

from penstock.train.loop.before_start import predicted_bytes
from penstock.train.loop.setup import layout_of
from train.samples import short

pytestmark = pytest.mark.torch

MODEL = (
    "model.preset=tiny",
    "pipeline.devices=2",
    "run.dtype=float32",
    "batch.microbatches=2",
    "batch.length=32",
)


def _held(processes: int, *mesh: str) -> int:
    settings = short(*MODEL, *mesh)
    return predicted_bytes(settings, layout_of(settings, processes))


def test_a_cell_of_tensor_ranks_holds_little_more_than_one_device() -> None:
    alone, cells = _held(2), _held(4, "mesh.tensor=2")
    assert alone < cells < 1.3 * alone


def test_ranks_that_share_tokens_hold_weights_each() -> None:
    alone, cells = _held(2), _held(4, "mesh.sequence=2")
    assert 1.3 * alone < cells < 2 * alone


def test_what_is_divided_over_replicas_is_held_once() -> None:
    kinds = ("none", "optimizer", "full")
    none, optimizer, full = (_held(8, "mesh.replicas=4", f"mesh.shard={kind}") for kind in kinds)
    assert none > full > optimizer  # with one stage on a device, its buffers are more than it saves
    pairs = _held(8, "mesh.replicas=4", "mesh.shard=optimizer", "mesh.shard_ranks=2")
    assert none > pairs > optimizer
