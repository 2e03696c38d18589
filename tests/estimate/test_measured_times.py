"""Estimates with a profile, compared with sums that are known."""

from dataclasses import replace
from json import dumps
from pathlib import Path

import pytest

from penstock.arch.config import ModelConfig
from penstock.arch.presets import MODELS
from penstock.cluster.measured import FACTORS
from penstock.cluster.profile_file import machine_of
from penstock.errors import ShapeError
from penstock.estimate.kernel_parts import HEAD_NORMS, layer_moved
from penstock.estimate.measured_times import ProfiledTimes, activations_by_part
from penstock.estimate.price import Estimate, estimate
from penstock.estimate.products import KERNEL_START
from penstock.estimate.request import layout_from
from penstock.profiling.sizes import whole_unit
from profiling.made_up import BYTES, FLOPS, profile

TINY = replace(MODELS["tiny"], element_bytes=4)
TOKENS = 64


def _estimated(path: Path, **row: object) -> Estimate:
    path.write_text(dumps(profile()))
    given = {"model": "tiny", "tokens": TOKENS, "batch_tokens": TOKENS, "schedule": "1f1b"}
    return estimate(layout_from(given | {"profile": str(path)} | row))


def test_a_step_is_its_flops_and_bytes_over_the_rates_of_the_profile(tmp_path: Path) -> None:
    found = _estimated(tmp_path / "p.json")
    products = 6 * TOKENS * (TINY.layers * TINY.layer_weights + TINY.head_weights)
    pairs = TOKENS**2 // 2
    attended = 3 * TINY.layers * TINY.pair_flops * pairs
    norms, sums, gate, turned = 10, 12, 8, 4
    width = TINY.attention.query_width + TINY.attention.key_width
    moved = (norms + sums) * TINY.hidden + gate * TINY.ffn + turned * width
    layers = 4 * TOKENS * TINY.layers * moved
    loss = 3 * TOKENS * TINY.vocabulary * 4
    looked_up = 5 * TOKENS * TINY.embedding.row_bytes
    parameters = found.memory[0].gradients // 4
    ended = 32 * parameters
    seconds = (products + attended) / FLOPS + (layers + loss + looked_up + ended) / BYTES
    assert found.seconds == pytest.approx(seconds + 2 * KERNEL_START, rel=1e-7)


WIDE = replace(
    TINY, hidden=2 * TINY.hidden, ffn=2 * TINY.ffn, heads=2 * TINY.heads, kv_heads=2 * TINY.kv_heads
)


def _times(model: ModelConfig, factor: float = 1.0, **changes: object) -> ProfiledTimes:
    """Kernels that take so many times longer in a step."""
    machine = machine_of(profile(in_step=dict.fromkeys(FACTORS, factor), **changes), "ours")
    return ProfiledTimes(model, model, machine.cluster.gpu, 1.0, "flash2", False)


@pytest.mark.parametrize(("factor", "wide"), [(1.5, 1.25), (1.0, 1.0), (0.8, 0.8)])
def test_on_a_host_products_of_twice_the_width_are_longer_in_a_step_by_half_the_share(
    factor: float, wide: float
) -> None:
    unit, host = whole_unit(TOKENS, 0), {"activations": activations_by_part(_times(TINY))}
    for model, said in ((TINY, factor), (WIDE, wide)):
        alone = _times(model).seconds(unit).weights
        assert _times(model, factor, **host).seconds(unit).weights == pytest.approx(said * alone)
        assert _times(model, factor).seconds(unit).weights == pytest.approx(factor * alone)


def test_kernels_that_move_bytes_are_as_much_longer_at_any_width() -> None:
    host = {"activations": activations_by_part(_times(TINY))}
    wide = _times(WIDE, 1.5, **host)
    parts, found = wide.parts(whole_unit(TOKENS, 0)), wide.seconds(whole_unit(TOKENS, 0))
    moved = parts.of("forward") - parts.of_products("forward")
    attended = wide.attention_seconds(whole_unit(TOKENS, 0)).forward
    products = 1.25 * parts.of_products("forward")
    assert found.forward == pytest.approx(products + 1.5 * (moved + attended))


def test_the_head_takes_as_much_longer_as_in_the_profiled_step_and_less_where_it_is_wider() -> None:
    host, flops = {"activations": activations_by_part(_times(TINY))}, 1e6
    head = {
        name: _times(model, 1.5, **host).head_seconds(TOKENS, flops, "I")
        / _times(model).head_seconds(TOKENS, flops, "I")
        for name, model in (("tiny", TINY), ("wide", WIDE))
    }
    assert head["tiny"] == pytest.approx(1.5)
    assert 1.25 < head["wide"] < 1.5


def test_a_profile_needs_no_cluster_and_gives_one_its_kernels(tmp_path: Path) -> None:
    alone = _estimated(tmp_path / "p.json")
    assert (alone.layout.cluster.gpus, alone.layout.precision) == (1, "fp32")
    assert alone.memory[0].context == alone.memory[0].fragmentation == 0
    with pytest.raises(ShapeError, match="no peak for fp32"):
        _estimated(tmp_path / "p.json", cluster=_half_only(tmp_path))
    among = _estimated(tmp_path / "p.json", cluster="h100:2", batch_tokens=2 * TOKENS)
    assert among.seconds > alone.seconds
    assert among.layout.cluster.machine.rate == 450e9


def _half_only(folder: Path) -> str:
    """A cluster whose GPUs have no peak in 32 bits."""
    from penstock.cluster.keys import values_of
    from penstock.cluster.presets import CLUSTERS

    lines = []
    for path, value in values_of(CLUSTERS["h100"]).items():
        if path[-1] not in ("fp32", "fp16"):
            lines.append(f"{'.'.join(path)} = {dumps(value)}")
    file = folder / "half.toml"
    file.write_text("\n".join(lines).replace("gpus = 8\n", "gpus = 1\n", 1))
    return str(file)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"precision": "bf16"}, "fp32 was profiled"),
        ({"attention": "flash2"}, "leave attention out"),
        ({"fused_norm": True}, "leave fused_norm out"),
    ],
)
def test_what_was_measured_is_not_asked_for_otherwise(
    tmp_path: Path, row: dict[str, object], said: str
) -> None:
    with pytest.raises(ShapeError) as refused:
        _estimated(tmp_path / "p.json", **row)
    assert said in f"{refused.value.message} {refused.value.hint}"


def test_only_on_a_gpu_are_kernels_of_shared_words_and_heads_others_than_those_measured() -> None:
    """A host has a kernel for each step of all losses and norms, and that is what was measured."""
    model = replace(MODELS["olmo2-7b"], element_bytes=4)
    host = replace(_times(model), tensor=2)
    assert host.kernels.on_host
    measured = replace(host.kernels, on_host=False)
    shared = replace(host, gpu=replace(host.gpu, measured=measured))
    unit, flops = whole_unit(TOKENS, 0), 6.0 * model.head_weights
    plain = {(kind, host.loss_moved(flops, kind)) for kind in "BST"}
    assert plain == {(kind, 3.0 * model.vocabulary * 4) for kind in "BST"}
    assert shared.loss_moved(flops, "B") == 10.0 * model.vocabulary * 4
    assert host.moved(unit) == layer_moved(model, unit)
    norms = {name for name, moved in shared.moved(unit).items() if moved != host.moved(unit)[name]}
    assert norms == {(HEAD_NORMS, "forward"), (HEAD_NORMS, "inputs")}
