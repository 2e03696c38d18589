"""Words for stages, and what is refused before a process starts."""

import pytest

from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.train.loop.before_start import predicted_bytes, refuse_start
from penstock.train.loop.host_stages import host_stages
from penstock.train.loop.setup import layout_of
from train.samples import short

pytestmark = pytest.mark.torch

MODEL = (
    "model.preset=tiny",
    "pipeline.devices=2",
    "pipeline.schedule=chronos",
    "pipeline.chunks=2",
    "pipeline.slices=1",
    "run.dtype=float32",
    "batch.microbatches=2",
    "batch.length=32",
)


def shape_of(name: str, **request: int) -> Shape:
    return build(name, devices=2, microbatches=4, **request).shape


@pytest.mark.parametrize(
    ("wanted", "stages"),
    [("none", []), ("deep", [2, 3]), ("all", [0, 1, 2, 3]), ((1,), [1])],
)
def test_a_word_stands_for_stages(wanted: str | tuple[int, ...], stages: list[int]) -> None:
    shape = shape_of("chronos", chunks=2)
    assert sorted(host_stages(wanted, shape, tied=False)) == stages


def test_deep_stages_leave_out_what_has_no_weights_and_one_end_of_a_tied_weight() -> None:
    assert sorted(host_stages("deep", shape_of("chronos", chunks=2), tied=True)) == [2]
    helix = shape_of("helixpipe")
    assert (
        sorted(host_stages("deep", helix, tied=False))
        == [stage for stage in range(helix.stages) if stage % 2 == 0][
            (helix.stages + 1) // 2 // 2 :
        ]
    )


def refusal(*changes: str) -> ShapeError:
    settings = short(*MODEL, *changes)
    with pytest.raises(ShapeError) as refused:
        refuse_start(settings, layout_of(settings, 2 * settings.mesh.replicas))
    return refused.value


def test_what_ranks_share_is_refused() -> None:
    shared = refusal("optimizer.host_stages=deep", "mesh.shard=optimizer", "mesh.replicas=2")
    assert "stages 2, 3 is to be on the host, but ranks share it" in shared.message
    assert 'set mesh.shard to "none"' in (shared.hint or "")


def test_one_end_of_a_tied_weight_and_a_stage_that_is_not_there_are_refused() -> None:
    assert "share a weight" in refusal("optimizer.host_stages=[3]", "model.tied=true").message
    assert "stage 9 has no weights" in refusal("optimizer.host_stages=[9]").message


def test_a_run_on_the_host_holds_main_weights_and_gradients_of_such_stages_twice() -> None:
    none, deep = (
        predicted_bytes(settings, layout_of(settings, 2))
        for settings in (short(*MODEL), short(*MODEL, "optimizer.host_stages=deep"))
    )
    assert none < deep < 1.5 * none
