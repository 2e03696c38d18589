"""Model FLOPs: what the model needs, however it is computed; and the bubble as it is measured."""

from dataclasses import replace

import pytest
import torch

from penstock.arch.config import ModelConfig
from penstock.cost.hardware import HARDWARE
from penstock.cost.model import UnitCost
from penstock.cost.workload import Workload
from penstock.data.batch import Microbatch
from penstock.run.comm.grid import Grid
from penstock.run.observe.utilisation import document_lengths, idle_share, model_flops, peak_flops
from penstock.schedules import build
from penstock.sim import simulate

pytestmark = pytest.mark.torch

MODEL = ModelConfig(4, 32, 64, 4, 2, 8, 100)


def test_a_step_is_three_forwards() -> None:
    per_token = 2 * (4 * (2 * 32 * 8 * 6 + 3 * 32 * 64) + 32 * 100)
    pairs = 4 * (4 * 4 * 8) * 16**2 // 2
    assert model_flops(MODEL, [16]) == 3 * (16 * per_token + pairs)
    assert model_flops(MODEL, [16, 16]) == 2 * model_flops(MODEL, [16])


def test_longer_sequences_need_more_than_as_many_short_ones() -> None:
    assert model_flops(MODEL, [64]) > model_flops(MODEL, [32, 32])


def test_tokens_attend_inside_their_own_document_only() -> None:
    tokens = torch.zeros(2, 64, dtype=torch.long)
    packed = Microbatch(tokens, tokens, ((0, 16, 32, 48), (0, 40)))
    assert document_lengths([packed, packed]) == [16, 16, 16, 16, 40, 24] * 2
    linear = 64 * MODEL.flops_per_token
    apart = model_flops(MODEL, [16] * 4) - 3 * linear
    assert 4 * apart == model_flops(MODEL, [64]) - 3 * linear


def test_tokens_attend_within_the_window_only() -> None:
    """A window of 8 has 8 keys for all tokens but the first ones: of 64, a triangle of 8 is cut."""
    narrow = replace(MODEL, window=8)
    attention = MODEL.flops_per_pair * (64 * 8 - 8 * 8 // 2)
    assert model_flops(narrow, [64]) == 3 * (64 * MODEL.flops_per_token + attention)
    assert model_flops(narrow, [8, 4]) == model_flops(MODEL, [8, 4])


def test_the_count_is_that_of_the_cost_model() -> None:
    schedule = build("gpipe", devices=2, microbatches=3)
    work = Workload.of(schedule.shape, MODEL, (64,)).work(schedule)
    assert int(work.flops.sum()) == model_flops(MODEL, [64] * 3)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved"])
def test_the_measured_bubble_is_the_one_that_a_simulation_tells(name: str) -> None:
    """Of two pipelines side by side, the second of which is twice as slow."""
    schedule = build(name, devices=4, microbatches=8)
    timeline = simulate(schedule, UnitCost())
    lanes = [[s for s in timeline.spans() if s.device == device] for device in range(4)]
    busy = [float(sum(span.end - span.start for span in lane)) for lane in lanes]
    spans = [float(lane[-1].end - lane[0].start) for lane in lanes]
    both = [busy + [2 * t for t in busy], spans + [2 * t for t in spans]]
    assert idle_share(*both, [range(4), range(4, 8)]) == pytest.approx(float(timeline.bubble_span))
    assert idle_share([0.0], [0.0], [[0]]) == 0.0


def test_the_bubble_is_that_of_ranks_that_follow_each_other_in_the_pipeline() -> None:
    """Two devices of two tensor ranks: ranks 0 and 1 are one device, which is always busy."""
    pipelines = Grid(device=2, tensor=2).groups("device")
    assert pipelines == [[0, 2], [1, 3]]
    assert idle_share([4.0, 4.0, 2.0, 2.0], [4.0] * 4, pipelines) == 0.25
    assert idle_share([4.0, 4.0, 2.0, 2.0], [4.0, 4.0, 2.0, 2.0], pipelines) == 0.25


def test_the_host_has_no_peak_that_is_known() -> None:
    assert peak_flops(torch.device("cpu")) is None


@pytest.mark.parametrize("key", list(HARDWARE))
def test_a_known_gpu_has_the_peak_of_its_kind(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"NVIDIA {key.upper()} 80GB")
    assert peak_flops(torch.device("cuda", 0)) == HARDWARE[key].linear


def test_an_unknown_gpu_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Abacus 9000")
    assert peak_flops(torch.device("cuda", 0)) is None
