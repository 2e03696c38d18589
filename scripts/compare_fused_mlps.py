"""Time a run of MLPs one behind the other and as one fused MLP, and compare with the prediction.

    python scripts/compare_fused_mlps.py --parts 4 --tokens 256 --hidden 8192 --ffn 28672

On the GPU where there is one, else on the CPU, where the prediction is still that of an H200. Both
compute forward and all gradients with the layers that train, from random weights, in bfloat16 on a
GPU. Printed are seconds of the fastest of some repeats and how many times faster the fused one is,
measured and predicted, as JSON. One rank has no collectives: those are in `penstock estimate`.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from penstock.arch.blocks import LayerBlock
from penstock.arch.config import ModelConfig
from penstock.arch.parameters import layer_prefix, stage_layout, stage_parameters
from penstock.cluster.read import read_cluster
from penstock.estimate.layer_seconds import UnitTokens
from penstock.estimate.layer_times import LayerTimes
from penstock.fusion.fusion_plan import FusionPlan, fused_model
from penstock.model.layers.linear import Queue, add_products
from penstock.model.layers.mlp_block import MlpBlock
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import result_of

REPEATS, FIRST = 10, 3


def run_of(parts: int, hidden: int, ffn: int) -> ModelConfig:
    """A model of MLPs alone."""
    block = LayerBlock(ffn, attention=False)
    return ModelConfig(parts, hidden, ffn, 1, 1, 2, 2, blocks=(block,) * parts)


def step_of(model: ModelConfig, x: Tensor) -> Callable[[], None]:
    """Forward and backward of all layers of a model."""
    layers = range(model.layers)
    layout = stage_layout(model, stage_parameters(model, layers, 1, 3))
    flat = torch.randn(layout.elements, dtype=x.dtype, device=x.device) / 100
    values, gradients = Views(layout, flat), Views(layout, torch.zeros_like(flat))
    block = MlpBlock(model)
    own, d_own = (
        [block.views(each, layer_prefix(at)) for at in layers] for each in (values, gradients)
    )

    def step() -> None:
        y, kept = x, []
        for weights in own:
            y, saved = result_of(block.forward(weights, y, len(x)))
            kept.append(saved)
        queue, dy = Queue(), torch.ones_like(y)
        for weights, d_weights in zip(reversed(own), reversed(d_own)):
            dy = result_of(block.backward(weights, d_weights, kept.pop(), dy, queue))
        add_products(gradients.matrices, queue)

    return step


@torch.no_grad()
def fastest(step: Callable[[], None], device: torch.device) -> float:
    """Seconds of the fastest of some repeats."""
    found = []
    for _ in range(FIRST + REPEATS):
        start = perf_counter()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(perf_counter() - start)
    return min(found[FIRST:])


def predicted(model: ModelConfig, tokens: int) -> float:
    """Seconds of forward and gradients on an H200, without collectives."""
    gpu = read_cluster("h200:1").gpu
    unit = UnitTokens(tokens, tokens, tokens, 0.0, 0.0)
    counts = model.counts(range(model.layers))
    times = {
        kind: LayerTimes(kind, kind, gpu, gpu.peak_of("bf16"), "flash2", fused_norm=True)
        for kind in counts
    }
    return sum(count * sum(times[kind].seconds(unit)) for kind, count in counts.items())


def compare(parts: int, tokens: int, hidden: int, ffn: int) -> dict[str, Any]:
    """Both forms, measured here and predicted."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    run = replace(run_of(parts, hidden, ffn), element_bytes=dtype.itemsize)
    fused = fused_model(run, FusionPlan(fuse=(range(parts),)))
    x = torch.randn(tokens, hidden, dtype=dtype, device=device)
    seconds = [fastest(step_of(model, x), device) for model in (run, fused)]
    models = [replace(model, element_bytes=2) for model in (run, fused)]
    expected = [predicted(model, tokens) for model in models]
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "parts": parts,
        "tokens": tokens,
        "measured": {"run": seconds[0], "fused": seconds[1], "times": seconds[0] / seconds[1]},
        "h200": {"run": expected[0], "fused": expected[1], "times": expected[0] / expected[1]},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("parts", 4), ("tokens", 256), ("hidden", 8192), ("ffn", 28672)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    print(json.dumps(compare(**vars(parser.parse_args())), indent=2))
