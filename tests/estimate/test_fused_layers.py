"""FFN Fusion, "It works when" 5, predicted: what tensor-parallel ranks wait for falls by n - 1 of
what one MLP waits for, and a step is shorter where the cut knows which layers are longer."""

from dataclasses import replace

import pytest

from penstock.arch.blocks import LayerBlock
from penstock.arch.config import ModelConfig
from penstock.arch.mesh_shape import MeshShape
from penstock.arch.presets import model
from penstock.cluster.read import read_cluster
from penstock.estimate.balanced_layers import balanced_layers
from penstock.estimate.layout import Recompute, TrainingLayout
from penstock.estimate.price import estimate, layout_cost
from penstock.estimate.step_schedule import step_schedule
from penstock.estimate.utilisation import token_flops
from penstock.fusion.fusion_plan import fused_model, read_fusion_plan, without_attention

LLAMA = replace(model("llama3-70b"), layers=16)
REMOVED = without_attention(LLAMA, range(8, 14))
FUSED = fused_model(LLAMA, read_fusion_plan("remove=8-13 fuse=8-12"))


def layout(config: ModelConfig, pipeline: int = 1, tensor: int = 8) -> TrainingLayout:
    cluster = read_cluster(f"h200:{pipeline * tensor}")
    mesh = MeshShape(tensor=tensor)
    return TrainingLayout(config, cluster, 2048, 16384, "1f1b", mesh, pipeline)


def waited(config: ModelConfig) -> float:
    """Seconds of all collectives of tensor ranks in a step."""
    one = layout(config)
    step = step_schedule(one)
    return float(layout_cost(one, step).inside(step.schedule).total.sum())


def test_collectives_take_less_by_those_of_all_mlps_but_one() -> None:
    shorter = replace(REMOVED, layers=15, blocks=(*REMOVED.blocks[:8], *REMOVED.blocks[9:]))
    of_one = waited(REMOVED) - waited(shorter)
    assert waited(REMOVED) - waited(FUSED) == pytest.approx(4 * of_one, rel=1e-9)


def test_a_step_of_the_fused_model_is_shorter_where_ranks_share_matrices() -> None:
    removed, fused = (estimate(layout(each)) for each in (REMOVED, FUSED))
    assert estimate(layout(LLAMA)).seconds > removed.seconds > fused.seconds
    assert removed.exposed["tensor"] > fused.exposed["tensor"]


def test_alone_and_with_many_tokens_there_is_little_to_gain() -> None:
    alone = [
        replace(layout(each, tensor=1), tokens=65536, batch_tokens=65536)
        for each in (REMOVED, FUSED)
    ]
    one, other = (estimate(each).seconds for each in alone)
    assert other == pytest.approx(one, rel=0.02)


def test_a_balanced_cut_knows_which_layers_are_longer() -> None:
    four = layout(FUSED, pipeline=4, tensor=2)
    counts = balanced_layers(four)
    assert sum(counts) == FUSED.layers
    balanced = replace(four, layers=counts)
    assert estimate(balanced).seconds < estimate(four).seconds
    works = estimate(balanced).works
    assert max(works) < 1.25 * sum(works) / len(works)


def test_layers_that_are_computed_again_are_counted_by_their_kind() -> None:
    """All of them: memory falls to inputs alone, and time grows by a forward."""
    plain, again = layout(FUSED), replace(layout(FUSED), recompute=Recompute("all"))
    kept, less = estimate(plain), estimate(again)
    assert less.seconds > kept.seconds
    assert less.memory[0].activations < kept.memory[0].activations / 2
    some = estimate(replace(layout(FUSED), recompute=Recompute("layers=9")))
    assert kept.seconds < some.seconds < less.seconds


@pytest.mark.parametrize("attention", [True, False])
def test_blocks_that_are_all_alike_take_what_their_width_takes(attention: bool) -> None:
    """Whatever `ffn` says, which is the width of none of them."""
    wide, tensor = LLAMA.ffn * 3, MeshShape(tensor=2)
    blocks = (LayerBlock(wide, attention=attention),)
    told, other = (
        replace(layout(replace(LLAMA, ffn=ffn, blocks=blocks), tensor=2), mesh=tensor)
        for ffn in (wide, LLAMA.ffn)
    )
    assert token_flops(told.model, 2048) == token_flops(other.model, 2048)
    found, wanted = (estimate(each) for each in (other, told))
    assert found.seconds == wanted.seconds
    assert found.memory == wanted.memory
