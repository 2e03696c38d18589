"""What ranks of a cell send each other where a model is cut at its attention.

The collectives of a layer are those of cost/collectives.py, dealt out to the stages: what leads
into attention, attention itself, and what follows it.
"""

from collections.abc import Iterator

from penstock.arch.attention_cut import HEADS
from penstock.core.ops import Op
from penstock.cost.collectives import FORWARD_KINDS, Collective, SliceCollectives
from penstock.cost.cut_workload import CutWorkload
from penstock.cost.rank_share import RankShare


def cut_collectives(workload: CutWorkload, share: RankShare, op: Op) -> list[Collective]:
    """What a rank sends in an op of a schedule, from its beginning to its end."""
    slice = CutCollectives(share, workload.lengths[op.mb][: op.slice + 1])
    heads, last = workload.to_attention == HEADS, len(workload.layers) - 1
    forward = op.kind in FORWARD_KINDS
    if op.kind == "W":
        return []
    if op.stage in workload.weightless:
        projection = () if heads else slice.projection(back=not forward)
        return [*projection, *slice.attention(op.kind)]
    if forward:
        rest = slice.rest_forward() if op.stage else slice.embedding_forward
        return [*rest, *(slice.front_forward() if heads and op.stage < last else ())]
    front = slice.front_backward(heads=heads) if op.stage < last else slice.loss_backward
    return [*front, *(slice.rest_backward() if op.stage else slice.embedding_backward)]


class CutCollectives(SliceCollectives):
    """Of one slice, part by part."""

    def front_forward(self) -> Iterator[Collective]:
        yield from self._gather()
        yield from self._projection_norms(self.share.part.attention)

    def front_backward(self, *, heads: bool) -> Iterator[Collective]:
        """Past the projection, where this part has it; otherwise its gradient has come too."""
        yield from self.from_other_stage
        if not heads:
            yield from self.from_other_stage
            return
        yield from self._gather()
        yield from self._projection_norms(self.share.part.attention)
        yield from self._add_up()

    def rest_forward(self) -> Iterator[Collective]:
        """Out of attention, into the MLP and out of it."""
        yield from self.from_other_stage
        yield from self._add_up()
        yield from self._gather()
        yield from self._add_up()

    def rest_backward(self) -> Iterator[Collective]:
        for _ in range(2):
            yield from self._gather()
        yield from self._add_up()
        yield from self._gather()

    def projection(self, *, back: bool) -> Iterator[Collective]:
        """Its input, and the gradient of that."""
        yield from self.from_other_stage
        yield from self._gather()
        yield from self._projection_norms(self.share.part.attention)
        if back:
            yield from self._add_up()

    def attention(self, kind: str) -> Iterator[Collective]:
        yield from (
            self._attention_forward() if kind in FORWARD_KINDS else (self._attention_backward())
        )
