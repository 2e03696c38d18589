"""How deep a model can be trained in a given memory: arXiv:2503.03182, sections 6 and 7.

Layers like those of Llama 70B are added to eight devices, two stages each, until one of them is
full. Half of the layers are recomputed, and the optimizer state of the other half is on the host.
"""

from collections.abc import Collection

import pytest

from penstock.arch.config import ModelConfig
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.cost.workload import Workload
from penstock.plan.memory import Footprint, footprints
from penstock.schedules import build
from penstock.transform import recompute_stages

DEVICES, MICROBATCHES, TOKENS = 8, 16, 16_384


def halved_1f1b() -> Schedule:
    """1F1B with each stage cut in two, so that one half of it can be recomputed."""
    whole = build("1f1b", devices=DEVICES, microbatches=MICROBATCHES)
    halves = {"F": (0, 1), "B": (1, 0)}
    lanes = [
        [(op.kind, 2 * r + half, op.mb, 0) for op in whole.lane(r) for half in halves[op.kind]]
        for r in range(DEVICES)
    ]
    return Schedule.of("1f1b in halves", Shape.even(DEVICES, MICROBATCHES, 2), lanes)


def chronos() -> Schedule:
    return build("chronos", devices=DEVICES, microbatches=MICROBATCHES, chunks=2)


def held(schedule: Schedule, layers: int, on_host: Collection[int] = ()) -> tuple[Footprint, ...]:
    model = ModelConfig(layers, 8192, 28672, 64, 8, 128, 32_000)
    return footprints(schedule, Workload.of(schedule.shape, model, (TOKENS,)), on_host=on_host)


def fullest(schedule: Schedule, layers: int, on_host: Collection[int] = ()) -> int:
    return max(one.total for one in held(schedule, layers, on_host))


def deepest(schedule: Schedule, memory: int, on_host: Collection[int] = ()) -> int:
    """Layers that fit, as many for each of 16 stages; every further layer takes the same."""
    least, more = (fullest(schedule, layers, on_host) for layers in (16, 32))
    layers = 16 * ((memory - least) // (more - least) + 1)
    assert fullest(schedule, layers, on_host) <= memory < fullest(schedule, layers + 16, on_host)
    return int(layers)


@pytest.mark.long
def test_the_published_gains() -> None:
    """2.4 times the layers of 1F1B, 1.5 times and more those of 1F1B that recomputes half; with
    longer sequences the gain is larger, with shorter ones smaller."""
    plain, last = halved_1f1b(), range(DEVICES, 2 * DEVICES)
    memory = fullest(plain, 800)
    half = deepest(recompute_stages(plain, range(0, 16, 2)), memory)
    shallow = deepest(recompute_stages(chronos(), range(DEVICES)), memory)
    both = deepest(recompute_stages(chronos(), range(DEVICES)), memory, on_host=last)
    assert 800 < half < shallow < both
    assert round(both / 800, 1) == 2.4
    assert 1.5 <= both / half < 1.6


@pytest.mark.parametrize("stage", [0, 15])
def test_a_stage_on_the_host_leaves_its_weights_and_their_gradient(stage: int) -> None:
    """Section 5: without main weights and two moments, 12 of 18 bytes per parameter."""
    schedule = chronos()
    here, there = held(schedule, 16), held(schedule, 16, on_host=[stage])
    device = stage % DEVICES
    assert here[device].weights == there[device].weights
    own = ModelConfig(16, 8192, 28672, 64, 8, 128, 32_000)
    parameters = own.layer_weights + own.layer_vectors + own.head_weights
    parameters += own.hidden * (stage == 15)
    assert here[device].optimizer - there[device].optimizer == 12 * parameters
    assert [a == b for a, b in zip(here, there)] == [r != device for r in range(DEVICES)]
