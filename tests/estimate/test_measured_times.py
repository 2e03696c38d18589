"""Estimates with a profile, compared with sums that are known."""

from dataclasses import replace
from json import dumps
from pathlib import Path

import pytest

from penstock.arch.presets import MODELS
from penstock.errors import ShapeError
from penstock.estimate.price import Estimate, estimate
from penstock.estimate.products import KERNEL_START
from penstock.estimate.request import layout_from
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
