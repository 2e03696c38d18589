"""What a model costs that leaves out tokens: the ratios of its paper's specification, section 3."""

from dataclasses import replace

import pytest

from penstock.arch.config import ModelConfig
from penstock.arch.presets import MODELS, model
from penstock.arch.subsampling import Subsampling
from penstock.cost.hardware import HARDWARE
from penstock.cost.kept_workload import KeptWorkload
from penstock.cost.stage_workload import workload_for
from penstock.cost.transformer import TransformerCost
from penstock.cost.workload import Workload
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.sim import simulate

SUBLLM = model("subllm-1.3b")
PLAIN = replace(SUBLLM, subsampling=None)


def test_section_3_shares_of_the_released_structure() -> None:
    assert round(float(SUBLLM.layers_met() / 24), 4) == 0.7516
    assert round(float(SUBLLM.layers_met(2) / 24), 4) == 0.6153


def _flops(config: ModelConfig, length: int) -> float:
    """Forward FLOPs of a token in the middle of a sequence."""
    return config.flops_per_token + config.flops_per_pair * length / 2


@pytest.mark.parametrize(("length", "ratio"), [(2048, 0.753), (4096, 0.744), (8192, 0.729)])
def test_section_3_shares_of_the_whole_model(length: int, ratio: float) -> None:
    assert round(_flops(SUBLLM, length) / _flops(PLAIN, length), 3) == ratio
    assert round(1 / ratio, 2) == {2048: 1.33, 4096: 1.34, 8192: 1.37}[length]


def workloads(length: int, slices: int = 1, devices: int = 4) -> tuple[Workload, Workload]:
    name = "seq1f1b" if slices > 1 else "1f1b"
    shape = build(name, devices=devices, microbatches=4, slices=slices).shape
    cut = ((length // slices,) * slices,) * 4
    found = tuple(workload_for(shape, each, cut) for each in (SUBLLM, PLAIN))
    return found[0], found[1]


@pytest.mark.parametrize(("length", "ratio"), [(2048, 0.753), (4096, 0.744), (8192, 0.729)])
@pytest.mark.parametrize("slices", [1, 4])
def test_section_5_6_ops_have_the_flops_of_the_tokens_that_are_there(
    length: int, ratio: float, slices: int
) -> None:
    own, plain = workloads(length, slices)
    name = "seq1f1b" if slices > 1 else "1f1b"
    schedule = build(name, devices=4, microbatches=4, slices=slices)
    both = [int(each.work(schedule).flops.sum()) for each in (own, plain)]
    assert both[0] / both[1] == pytest.approx(ratio, rel=2e-3)


def test_section_3_activations_and_keys_fall_as_the_linear_share() -> None:
    own, plain = workloads(4096)
    schedule = build("1f1b", devices=4, microbatches=4)
    for size in ("kv", "stash"):
        both = [int(each.bytes(schedule, size).sum()) for each in (own, plain)]
        assert both[0] / both[1] == pytest.approx(0.7516, rel=1e-4)
    both = [int(each.bytes(schedule, "act").sum()) for each in (own, plain)]
    assert 0.7516 < both[0] / both[1] < 0.7516 * 1.06  # and x of each level


def test_what_goes_over_a_boundary_is_what_messages_hold() -> None:
    """Of 6 layers on each of 4 stages, brackets open behind 5 and 10 and close behind 14 and 19."""
    own, _ = workloads(4096)
    first, second, h = 2621, 1677, 2048 * 2
    assert isinstance(own, KeptWorkload)
    assert own.boundaries(4096) == (
        first * h + 4096 * h + 8 * first,
        second * h + (4096 + first) * h + 8 * (first + second),
        first * h + 4096 * h + 8 * first,
    )


def test_what_stays_on_its_device_is_not_sent() -> None:
    """The same over 8 stages in a V: both brackets of each pair are on one device."""
    schedule = build("zb-v", devices=4, microbatches=4)
    own = workload_for(schedule.shape, SUBLLM, ((4096,),) * 4)
    first, second, h = 2621, 1677, 2048 * 2
    outer, middle = first * h + 8 * first, second * h + 8 * (first + second)
    sent = own.applied_to(schedule).shape.boundary_bytes
    assert sent == (4096 * h, outer, outer, middle, outer, outer, 4096 * h)


def test_a_step_of_unequal_stages_is_simulated_with_their_tokens() -> None:
    """More devices wait where layers have few tokens; the whole is shorter all the same."""
    schedule = build("1f1b", devices=4, microbatches=8)
    hardware = HARDWARE["h200"]
    times = [
        simulate(schedule, TransformerCost.of(schedule.shape, each, hardware, [8192])).makespan
        for each in (SUBLLM, PLAIN)
    ]
    assert 0.73 < times[0] / times[1] < 1


def test_cells_are_refused_by_name() -> None:
    with pytest.raises(ShapeError, match="the model leaves out tokens"):
        Workload(SUBLLM, ((4096,),), (24,))


def test_other_presets_are_plain() -> None:
    assert [name for name, each in MODELS.items() if each.subsampling] == ["subllm-1.3b"]
    assert SUBLLM.subsampling == Subsampling("TTTTT(TTTTT(TTTT)TTTTT)TTTTT", keep=0.64)
    assert SUBLLM.parameters == PLAIN.parameters + 2 * 2 * 2048
