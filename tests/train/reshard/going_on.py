"""A run that is saved under one layout and goes on under another, held against one process."""

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from penstock.model.io.huggingface import read_weights
from penstock.run.launch.worker_pool import Crew
from train.reshard.jobs import HALF, Straight, resumed, saved
from train.reshard.layouts import Change

CLOSE = 1e-10
"""Relative error in float64 where only the order of additions has changed."""

Crews = Callable[[int], Crew]


def weights_in(folder: Path, like: dict[str, Tensor]) -> dict[str, Tensor]:
    return dict(read_weights(folder, like))


def assert_close(found: dict[str, Tensor], right: dict[str, Tensor], bound: float) -> None:
    assert found.keys() == right.keys()
    for name, tensor in right.items():
        apart = float((found[name] - tensor).abs().max() / tensor.abs().max())
        assert apart <= bound, f"{name}: {apart:.1e}"


def goes_on(change: Change, right: Straight, crews: Crews, folder: Path) -> None:
    """Save, load, train and export, and compare all of it with one process."""
    kept, export = folder / "checkpoints", folder / "export"
    first = crews(change.saved.ranks).run(saved, change.saved, change.model, kept)
    last = crews(change.resumed.ranks).run(resumed, change.resumed, change.model, kept, export)
    for went, steps in ((first, slice(HALF)), (last, slice(HALF, None))):
        for rank in went:
            assert rank.losses == pytest.approx(right.losses[steps], rel=CLOSE, abs=0)
            assert rank.norms == pytest.approx(right.norms[steps], rel=10 * CLOSE, abs=0)
    assert_close(weights_in(export, right.weights), right.weights, CLOSE)
