from fractions import Fraction

import pytest

from penstock.cost.volumes import (
    collected_per_parameter,
    gathered_elements,
    reduced_in_layer,
    sent_scattered,
    sent_whole,
)
from penstock.schedules import build
from penstock.sim import simulate
from penstock.transform import shard

TOKENS, HIDDEN = 2048, 12288


@pytest.mark.parametrize("tensor", [1, 2, 3, 8])
def test_section_2_5_a_scattered_boundary_moves_its_elements_once_and_not_once_per_device(
    tensor: int,
) -> None:
    """Section 2.5: b s h elements per pair of devices become b s h / t."""
    whole = sent_whole(TOKENS, HIDDEN)
    assert sent_scattered(TOKENS, HIDDEN, tensor) == whole / tensor
    assert tensor * sent_scattered(TOKENS, HIDDEN, tensor) == whole
    assert (
        sent_scattered(TOKENS, HIDDEN, tensor) + gathered_elements(TOKENS, HIDDEN, tensor) == whole
    )


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_section_3_a_layer_reduces_8bsh_of_which_a_device_keeps_its_own_part(tensor: int) -> None:
    """Section 3: 8 b s h (t - 1)/t, and the forward part again where it is recomputed."""
    part = Fraction(TOKENS * HIDDEN * (tensor - 1), tensor)
    assert reduced_in_layer(TOKENS, HIDDEN, tensor) == 8 * part
    assert reduced_in_layer(TOKENS, HIDDEN, tensor, forwards=2) == 12 * part


@pytest.mark.parametrize(("p", "v", "m"), [(4, 2, 8), (4, 4, 8), (2, 3, 4)])
def test_section_4_transfers_between_devices_grow_with_the_stages(p: int, v: int, m: int) -> None:
    """Section 4: v times as many boundaries are crossed, and each of them both ways."""
    looped = simulate(build("interleaved", devices=p, microbatches=m, chunks=v)).transfers
    plain = simulate(build("1f1b", devices=p, microbatches=m)).transfers
    assert len(plain.writer) == 2 * m * (p - 1)
    assert len(looped.writer) == 2 * m * (p * v - 1)


@pytest.mark.parametrize("v", [2, 4])
def test_section_4_breadth_first_moves_weights_twice_and_gradients_once(v: int) -> None:
    """Section 4: 3 elements per parameter, less what stays in the buffer over the turn."""
    base = build("breadth-first", devices=4, microbatches=16, chunks=v)
    moved = collected_per_parameter(shard(base, weights=1, gradients=v))
    assert moved == (3 - Fraction(1, v),) * 4
    replicated = collected_per_parameter(shard(base, weights=0, gradients=v))
    assert replicated == (1,) * 4


def test_section_4_depth_first_moves_weights_again_for_every_group() -> None:
    base = build("interleaved", devices=4, microbatches=16, chunks=2)
    moved = collected_per_parameter(shard(base, weights=1, gradients=2))
    assert moved == tuple(Fraction(gathers, 2) + 1 for gathers in (23, 47, 33, 9))
    assert collected_per_parameter(base) == (0,) * 4
