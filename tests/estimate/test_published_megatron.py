"""Formulas of arXiv:2104.04473 about time and memory, as an estimate has them."""

import pytest

from estimate.equal_stages import TOKENS, FreeStep
from penstock.arch.config import ModelConfig
from penstock.cluster.collective_times import GroupLinks
from penstock.cluster.presets import CLUSTERS
from penstock.estimate.utilisation import token_flops_again

ENDS = 2e-3
"""What the ends of the model add to equal stages, as a share."""


@pytest.mark.parametrize(("p", "m", "v"), [(4, 8, 1), (4, 8, 2), (4, 16, 4), (2, 4, 2), (8, 16, 2)])
def test_section_2_2_a_step_takes_m_and_the_bubble(p: int, m: int, v: int) -> None:
    """(m + (p - 1)/v)(tf + tb)."""
    chunked = {"schedule": "interleaved", "chunks": v} if v > 1 else {}
    found = FreeStep.of(p, m, **chunked)
    assert found.seconds == pytest.approx((m + (p - 1) / v) * found.work("FB"), rel=ENDS)


@pytest.mark.parametrize(("p", "m", "v"), [(4, 8, 1), (4, 8, 2), (4, 16, 4), (8, 16, 2)])
def test_section_2_2_a_device_holds_so_many_stages_of_microbatches(p: int, m: int, v: int) -> None:
    """p - r, and interleaved min(2(p - 1 - r) + (v - 1)p + 1, v m) stages, each 1/v of a device."""
    chunked = {"schedule": "interleaved", "chunks": v} if v > 1 else {}
    found = FreeStep.of(p, m, **chunked)
    stage = 32 // (p * v) * found.layout.model.saved_bytes * TOKENS
    for device, memory in enumerate(found.memory[:-1]):
        live = min(2 * (p - 1 - device) + (v - 1) * p + 1, v * m) if v > 1 else p - device
        assert memory.activations == live * stage


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_section_3_4_the_time_of_a_microbatch_size(rows: int) -> None:
    """(B/(d b) + p - 1)(tf(b) + tb(b))."""
    found = FreeStep.of(4, 16, rows=rows)
    assert found.seconds == pytest.approx((16 / rows + 3) * found.work("FB"), rel=ENDS)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_section_3_3_more_replicas_leave_less_bubble(replicas: int) -> None:
    """(n - d)/b' of the ideal time, for n GPUs and b' microbatches of all replicas."""
    gpus, every = 8, 32
    devices = gpus // replicas
    found = FreeStep.of(devices, every, cluster=f"h100:{gpus}")
    ideal = every / replicas * found.work("FB")
    assert found.seconds / ideal - 1 == pytest.approx((gpus - replicas) / every, rel=0.01)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_section_3_3_a_ring_sends_all_but_its_own_part(ranks: int) -> None:
    """(d - 1)/d of the gradients, there and back, where latencies are next to nothing."""
    size, group = 1e12, GroupLinks(CLUSTERS["h100"], ranks, ranks)
    sent = 2 * (ranks - 1) / ranks * size
    assert group.sum_seconds(sent) * group.rate / 2 / size == pytest.approx(
        (ranks - 1) / ranks, rel=1e-3
    )


def test_section_3_5_layers_computed_again_keep_their_input_and_one_layer() -> None:
    """c A_in + l/c A_mid with a checkpoint of every layer, c = l."""
    none, every = (FreeStep.of(4, 8, recompute=each) for each in ("none", "all"))
    model = none.layout.model
    inputs, middle = 8 * 2 * 4096 * TOKENS, (model.saved_bytes + model.kv_bytes) * TOKENS
    assert every.memory[0].activations == 4 * inputs
    assert every.while_running("B") - none.while_running("B") == middle


def test_section_5_1_parameters() -> None:
    """P = 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)), less biases and learned positions, which
    the models here do not have: 13 l h there are 4 of norms and 9 of biases, 2 l h here of norms,
    and one h behind the last layer."""
    layers, h, s, words = 24, 2048, 1024, 51200
    model = ModelConfig(layers, h, 4 * h, 16, 16, 128, words, gated=False, tied=True)
    paper = 12 * layers * h**2 + 13 * layers * h + (words + s) * h
    assert model.parameters == paper - (13 - 2) * layers * h - s * h + h


def test_section_5_1_training_takes_eight_operations_of_a_parameter_and_token() -> None:
    """8 T P/(n X) where all layers are computed again and sequences are short."""
    model = ModelConfig(96, 12288, 4 * 12288, 96, 96, 128, 51200, gated=False, tied=True)
    found = token_flops_again(model, 2048, model.layers)
    assert found == pytest.approx(8 * model.parameters, rel=0.03)
