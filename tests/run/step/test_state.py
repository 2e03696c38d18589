"""What outlives a rank has names that know nothing of how the model is spread."""

from dataclasses import replace

import pytest
import torch

from penstock.arch.parameter_layout import ParameterLayout, ParameterPart
from penstock.arch.parameters import EMBEDDING, HEAD, expected_shapes
from penstock.model.io.tensor_block import Region, TensorBlocks
from penstock.model.stages.weights import Weights
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.transport import Alone
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW, make_optimizer
from penstock.run.step.state import (
    begin,
    entries,
    held,
    set_step,
    settle,
    to_load,
    to_save,
)
from penstock.schedules import build
from run.jobs import CPU, batch_of
from run.plans import SMALL, plan_of

pytestmark = pytest.mark.torch

TIED = replace(SMALL, tied=True)
SCHEDULE = build("1f1b", devices=2, microbatches=2)


def _engine(device: int, devices: int = 2, dtype: torch.dtype = torch.float32) -> Engine:
    schedule = SCHEDULE if devices == 2 else build("1f1b", devices=1, microbatches=2)
    plan = plan_of(schedule, TIED, dtype)
    return Engine(plan, Mesh(Grid(device=devices), device), Alone(), adam=AdamW(), device=CPU)


def _wholes(blocks: TensorBlocks) -> dict[str, torch.Tensor]:
    """Tensors that a rank holds whole, each in one block."""
    assert all(block.region.sizes == block.shape for found in blocks.values() for block in found)
    return {name: block.tensor for name, (block,) in blocks.items()}


def test_all_ranks_together_save_every_parameter_and_its_moments_once() -> None:
    saved = [key for device in range(2) for key in to_save(_engine(device))]
    expected = {
        f"{kind}/{name}"
        for name in expected_shapes(TIED)
        for kind in ("weights", "exp_avg", "exp_avg_sq")
    }
    assert len(saved) == len(expected)
    assert set(saved) == expected


def test_a_rank_with_the_tied_head_alone_loads_it_under_the_name_of_the_embedding() -> None:
    engine = _engine(1)
    assert f"weights/{EMBEDDING}" in to_load(engine)
    assert f"weights/{EMBEDDING}" not in to_save(engine)
    assert EMBEDDING not in held(engine)


def test_initial_weights_are_the_same_however_the_model_is_spread() -> None:
    (whole,) = engines = [_engine(0, 1)]
    parts = [_engine(0), _engine(1)]
    for engine in (*engines, *parts):
        begin(engine, 7)
    spread = {name: tensor for part in parts for name, tensor in _wholes(held(part)).items()}
    found = _wholes(held(whole))
    assert spread.keys() == found.keys()
    assert all(torch.equal(value, spread[name]) for name, value in found.items())
    for engine in (parts[1], whole):
        head = next(entry for entry in entries(engine) if entry.copy)
        assert torch.equal(head.main, found[EMBEDDING])


def test_a_head_beside_its_embedding_is_loaded_with_it() -> None:
    engine = _engine(0, 1, torch.bfloat16)
    begin(engine, 7)
    for key, blocks in to_load(engine).items():
        for block in blocks:
            block.tensor.fill_(2.0 if key.startswith("weights") else 3.0)
    settle(engine, 11)
    head = next(entry for entry in entries(engine) if entry.copy)
    assert set(head.main.flatten().tolist()) == {2.0}
    assert set(head.moments["exp_avg"].flatten().tolist()) == {3.0}
    assert engine.optimizers[0].steps == 11
    weights = engine.weights[0]
    assert set(weights.named(weights.value)[HEAD].flatten().tolist()) == {2.0}


def test_a_head_on_a_later_stage_of_the_same_rank_is_loaded_with_the_embedding() -> None:
    schedule = build("interleaved", devices=1, microbatches=2, chunks=2)
    mesh = Mesh(Grid(), 0)
    engine = Engine(plan_of(schedule, TIED), mesh, Alone(), adam=AdamW(), device=CPU)
    original, copy = to_load(engine)[f"exp_avg/{EMBEDDING}"]
    assert original.region == copy.region
    assert original.tensor.data_ptr() != copy.tensor.data_ptr()
    (stored,) = to_save(engine)[f"exp_avg/{EMBEDDING}"]
    assert stored.tensor.data_ptr() == original.tensor.data_ptr()


def test_a_part_of_a_parameter_is_stored_as_a_block_of_it_and_takes_its_own_numbers() -> None:
    """Two engines with the columns of one matrix that two tensor-parallel ranks would hold."""
    name = "model.layers.0.mlp.down_proj.weight"
    whole = _engine(0, 1)
    begin(whole, 7)
    ((_, (full,)),) = [item for item in held(whole).items() if item[0] == name]
    size, columns = full.shape
    for start, end in ((0, columns // 3), (columns // 3, columns)):
        part = ParameterPart((size, columns), 1, start, end, offset=0)
        engine = _engine(0, 1)
        layout = ParameterLayout({name: part})
        engine.weights[0] = Weights.empty(
            layout, dtype=torch.float32, main=torch.float32, device=CPU
        )
        engine.optimizers[0] = make_optimizer(AdamW(), engine.weights[0])
        begin(engine, 7)
        blocks = to_save(engine)
        assert blocks.keys() == {f"{kind}/{name}" for kind in ("weights", "exp_avg", "exp_avg_sq")}
        assert {block.region for (block,) in blocks.values()} == {
            Region((0, start), (size, end - start))
        }
        (block,) = blocks[f"weights/{name}"]
        assert block.shape == full.shape
        assert torch.equal(block.tensor, full.tensor[block.region.ranges])


def test_a_loaded_optimizer_goes_on_as_if_it_had_never_stopped() -> None:
    plan = _engine(0, 1).plan
    straight, stopped = _engine(0, 1), _engine(0, 1)
    for engine in (straight, stopped):
        begin(engine, 7)
        engine.step(batch_of(plan, 0), 0.01)
    resumed = _engine(0, 1)
    begin(resumed, 8)
    saved = _wholes(to_save(stopped))
    for key, tensor in _wholes(to_load(resumed)).items():
        tensor.copy_(saved[key])
    settle(resumed, 1)
    for engine in (straight, resumed):
        engine.step(batch_of(plan, 1), 0.01)
    assert torch.equal(straight.weights[0].main, resumed.weights[0].main)


def test_the_age_of_the_moments_is_the_number_of_steps() -> None:
    engine = _engine(0)
    set_step(engine, 5)
    assert engine.optimizers[0].steps == 5
