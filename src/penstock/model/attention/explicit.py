"""The forward and the backward of a slice's attention as two plain functions."""

from typing import NamedTuple

from torch import Tensor

from penstock.errors import RunError
from penstock.model.attention.back_end import Seen
from penstock.model.attention.groups import Group, groups_of, stacked
from penstock.model.attention.memory import KeyValues, Relay
from penstock.model.attention.table import back_end_for
from penstock.model.stages.piece import Piece


class Place(NamedTuple):
    """Which attention is meant: of a layer, on a slice, with the keys of the slices before it."""

    piece: Piece
    memory: KeyValues | None
    """None where the slice is the whole sequence."""
    layer: int

    def keys_and_values(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the whole prefix."""
        if self.memory is not None:
            return self.memory.keys[self.layer], self.memory.values[self.layer]
        if not self.piece.whole:
            raise RunError(
                f"slice {self.piece.slice} of microbatch {self.piece.mb} has no memory of the "
                "slices before it",
                hint="give the KeyValues of its microbatch",
            )
        return k, v


def attention_forward(q: Tensor, k: Tensor, v: Tensor, place: Place) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp; the keys and values of the slice are in the memory already."""
    back_end, piece = back_end_for(q, place.piece), place.piece
    keys, values = place.keys_and_values(k, v)
    each = [
        back_end.forward(
            group.of(q), group.keys(keys, piece), group.keys(values, piece), group.reach
        )
        for group in groups_of(piece)
    ]
    out, lse = (stacked(results) for results in zip(*each))
    return out, lse


def attention_backward(g: Tensor, seen: Seen, place: Place) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the slice's queries, keys and values, with what later slices left for them.

    `seen` has the slice's own keys and values; those before it come from the memory.
    """
    g = g if g.stride(-1) == 1 else g.contiguous()
    each = [_backward_of(g, seen, group, place) for group in groups_of(place.piece)]
    dq, dk, dv = (stacked(gradients) for gradients in zip(*each))
    return dq, dk, dv


def _backward_of(
    g: Tensor, seen: Seen, group: Group, place: Place
) -> tuple[Tensor, Tensor, Tensor]:
    keys, values = place.keys_and_values(seen.k, seen.v)
    here = Seen(
        group.of(seen.q),
        group.keys(keys, place.piece),
        group.keys(values, place.piece),
        group.of(seen.out),
        group.of(seen.lse),
    )
    back_end = back_end_for(seen.q, place.piece)
    if place.memory is None:
        return back_end.backward(group.of(g), here, group.reach, _nowhere)
    relay = Relay(place.memory, place.layer, group.rows, place.piece, group.reach.past)
    dq, dk, dv = back_end.backward(group.of(g), here, group.reach, relay.leave)
    relay.take(dk, dv)
    return dq, dk, dv


def _nowhere(keys: range, dk: Tensor, dv: Tensor) -> None:
    raise AssertionError(f"a whole sequence has no keys {keys} before it")
