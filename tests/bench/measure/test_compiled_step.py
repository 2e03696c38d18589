"""The compiled model is a baseline only if it computes what our engine computes."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.rope_scaling import RopeScaling
from penstock.bench.measure.compiled_model import (
    CallBlock,
    CompiledBlock,
    CompiledDecoder,
    keep_activations,
    recompute_activations,
)
from penstock.bench.measure.compiled_step import CompiledStep, plain_making
from penstock.bench.measure.gpu_case import GpuCase
from penstock.errors import ShapeError
from penstock.run.step.build import build_engine
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin, held

pytestmark = [pytest.mark.torch, pytest.mark.long]

HOST = torch.device("cpu")
MODEL = ModelConfig(2, 32, 48, 4, 2, 8, 40, element_bytes=4)
TIED = replace(MODEL, tied=True, rope_scaling=RopeScaling("llama3", 8.0, 16), rope_theta=5e5)
BIASED = replace(MODEL, qkv_bias=True, qk_norm=True)
ADAM = AdamW(weight_decay=0.0, clip=0.5)
"""Ours leaves norms without decay, the compiled model does not: without any, both are the same."""


def case_of(model: ModelConfig, slices: int) -> GpuCase:
    schedule = "seq1f1b" if slices > 1 else "1f1b"
    return GpuCase("small", model, 48, schedule, slices=slices, dtype="float32")


def load(model: CompiledDecoder, weights: dict[str, Tensor]) -> None:
    """Take weights with the names of checkpoints; parts of one product are put together."""

    def put(target: Tensor, *names: str) -> None:
        target.copy_(torch.cat([weights[name] for name in names]))

    put(model.embedding.weight, "model.embed_tokens.weight")
    put(model.norm.weight, "model.norm.weight")
    if "lm_head.weight" in weights:
        put(model.head.weight, "lm_head.weight")
    for number, block in enumerate(model.blocks):
        assert isinstance(block, CompiledBlock)
        load_block(block, lambda target, *names, n=number: put(
            target, *(f"model.layers.{n}.{name}" for name in names)
        ))  # fmt: skip


def load_block(block: CompiledBlock, put: Callable[..., None]) -> None:
    put(block.first_norm.weight, "input_layernorm.weight")
    put(block.second_norm.weight, "post_attention_layernorm.weight")
    put(block.qkv.weight, *(f"self_attn.{part}_proj.weight" for part in "qkv"))
    if block.qkv.bias is not None:
        put(block.qkv.bias, *(f"self_attn.{part}_proj.bias" for part in "qkv"))
        put(block.q_norm.weight, "self_attn.q_norm.weight")
        put(block.k_norm.weight, "self_attn.k_norm.weight")
    put(block.out.weight, "self_attn.o_proj.weight")
    put(block.gate_up.weight, "mlp.gate_proj.weight", "mlp.up_proj.weight")
    put(block.down.weight, "mlp.down_proj.weight")


def both(case: GpuCase, call: CallBlock, loss_tokens: int) -> tuple[Engine, CompiledStep]:
    """Our engine and the compiled model, with equal weights."""
    engine = build_engine(case.plan(), 1, ADAM, HOST)
    begin(engine, 0)
    making = plain_making(HOST, torch.float32)
    theirs = CompiledStep(
        case.config(), case.words(), making, call=call, adam=ADAM, loss_tokens=loss_tokens
    )
    with torch.no_grad():
        load(theirs.model, {name: block.tensor for name, (block,) in held(engine).items()})
    return engine, theirs


@pytest.mark.parametrize(
    ("model", "slices", "call", "loss_tokens"),
    [
        (MODEL, 1, keep_activations, 4096),
        (MODEL, 3, recompute_activations, 16),
        (TIED, 3, keep_activations, 16),
        (BIASED, 1, keep_activations, 16),
    ],
)
def test_loss_and_norm_are_those_of_our_engine_in_every_step(
    model: ModelConfig, slices: int, call: CallBlock, loss_tokens: int
) -> None:
    """Of the second and third step only if the update is the same, too."""
    case = case_of(model, slices)
    engine, theirs = both(case, call, loss_tokens)
    for _ in range(3):
        ours, found = engine.step(case.batch(), 1e-4), theirs.step()
        assert sum(float(loss) for loss in found.losses) == pytest.approx(ours.loss, rel=1e-5)
        assert float(found.norm) == pytest.approx(ours.norm, rel=1e-4)
    assert ours.norm > ADAM.clip  # so that clipping is compared, too


def test_another_weight_is_noticed() -> None:
    """The comparison above can fail."""
    case = case_of(MODEL, 1)
    engine, theirs = both(case, keep_activations, 16)
    with torch.no_grad():
        theirs.model.norm.weight.mul_(1.1)
    ours, found = engine.step(case.batch(), 1e-4), theirs.step()
    assert sum(float(loss) for loss in found.losses) != pytest.approx(ours.loss, rel=1e-5)


def test_main_weights_keep_what_16_bits_lose() -> None:
    making = plain_making(HOST, torch.bfloat16)
    theirs = CompiledStep(MODEL, case_of(MODEL, 1).words(), making)
    before = [main.clone() for main in theirs.main]
    theirs.step()
    assert all(value.dtype == torch.bfloat16 for value in theirs.values)
    assert all(main.dtype == torch.float32 for main in theirs.main)
    assert not any(torch.equal(old, new) for old, new in zip(before, theirs.main))
    for value, main in zip(theirs.values, theirs.main):
        assert torch.equal(value, main.bfloat16())


def test_a_model_without_a_gate_is_refused() -> None:
    with pytest.raises(ShapeError, match="gated MLP"):
        CompiledDecoder(replace(MODEL, gated=False))
