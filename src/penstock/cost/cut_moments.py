"""What a stage keeps, and what it needs only while it runs, where a model is cut at its attention.

The sizes of one slice on one rank, in bytes. They follow `model/stages/between_attentions.py` and
`attention_stage.py` line by line, as cost/rank_temporary.py follows `model/layers`: a moment is a
sum of what is alive then, beside what is kept and what came from another stage.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.arch.attention_cut import Crossing
from penstock.arch.layers.record import wide_bytes
from penstock.cost.rank_share import RankTokens
from penstock.cost.rank_temporary import RankMoments


@dataclass(frozen=True)
class CutMoments:
    """One slice, in the stages around one attention and in that attention."""

    sizes: RankMoments
    tokens: RankTokens
    there: Crossing
    """What goes to attention."""
    back: Crossing
    """What comes from it."""

    @property
    def _element(self) -> int:
        return self.sizes.share.model.element_bytes

    def carried(self, crossing: Crossing) -> int:
        """What a rank sends, of this slice."""
        hidden = self.sizes.share.model.hidden
        return crossing.elements(hidden, self.tokens.whole, self.tokens.handed) * self._element

    @property
    def given(self) -> int:
        """The input of attention."""
        return self.carried(self.there)

    @property
    def result(self) -> int:
        """Its output, and what went past it."""
        return self.carried(self.back)

    @property
    def _replica(self) -> int:
        """All tokens of what was handed on in shares, where ranks hold all."""
        cell, scattered = self.sizes.share.cell, self.sizes.share.scattered
        return self.sizes.own if cell.tensor > 1 and not scattered else 0

    @property
    def _share(self) -> int:
        """A copy of the own share of these."""
        return self.tokens.handed * self.sizes.share.model.boundary_bytes * (self._replica > 0)

    # What is kept

    def front_kept(self) -> int:
        """In front of attention: input and output of the norm; heads before norms of their own."""
        sizes = self.sizes
        return 2 * sizes.own + sizes.qkv * sizes.share.part.qk_norm

    def rest_kept(self) -> int:
        """Behind attention: what came from it, input and output of the norm, and inside the MLP."""
        return self.result + 2 * self.sizes.own + 3 * self.sizes.ffn

    def attention_kept(self) -> int:
        """Queries, output and one log-sum-exp per head; keys and values are counted apart."""
        return self.tokens.attended * self.sizes.share.attended.attention.attended_bytes

    def front_stash(self) -> int:
        """Input and gradient of the projection."""
        return self.sizes.row + self.sizes.qkv

    def rest_stash(self) -> int:
        """Inputs and gradients of three products."""
        sizes = self.sizes
        return self.result + 3 * sizes.row + 3 * sizes.ffn

    # What is there only while an op runs

    def forward(self, *, front: bool) -> int:
        """The projection and what is sent of it, twice; or the last sum of a layer."""
        sizes = self.sizes
        last_sum = sizes.summed - sizes.own if sizes.share.cell.tensor > 1 else 0
        if not front:
            return last_sum
        projected = 2 * sizes.qkv + sizes.gathered
        return max(projected, sizes.qkv + self.given + self._share, last_sum - 2 * sizes.own)

    def backward(self, *, rest: bool, front: bool, loss: int) -> int:
        """The most of what stands between two attentions; `loss` is what the output layer needs."""
        waiting = self.sizes.qkv + self.sizes.gathered if front else 0
        moments = [*self._front_back(waiting)] if front else [loss, self.sizes.normed]
        moments += self._rest_back(waiting) if rest else [waiting + self.sizes.row]
        return max(moments)

    def _front_back(self, waiting: int) -> Iterator[int]:
        sizes = self.sizes
        yield waiting + self._replica + max(sizes.summed, sizes.normed)
        if sizes.share.part.qk_norm:
            yield waiting + self._replica + 3 * sizes.queries * self._wide

    def _rest_back(self, waiting: int) -> Iterator[int]:
        sizes = self.sizes
        inwards = waiting + sizes.own + 2 * sizes.gathered + 2 * sizes.ffn
        yield inwards + sizes.ffn
        yield inwards + max(sizes.summed, sizes.normed)
        yield inwards + sizes.own + sizes.gathered + sizes.queries + self.result + self._share

    def attention_forward(self) -> int:
        """What goes on; where heads are exchanged, the output by token beside it."""
        sizes = self.sizes
        exchanged = sizes.share.cell.ulysses > 1
        return sizes.turns + self.result + sizes.queries * exchanged

    def attention_backward(self) -> int:
        """Attention itself; then its gradients, as they come and as they go on."""
        sizes = self.sizes
        return sizes.turns + max(sizes.attended, sizes.qkv + self.given)

    def attention_light(self) -> int:
        """What attention keeps that runs again: its input."""
        return self.given

    @property
    def _wide(self) -> int:
        return wide_bytes(self._element) // self._element


class WeightMoments(CutMoments):
    """The same where attention is given the weights of its projection, and their input."""

    @property
    def _sent(self) -> int:
        """Those weights, and the own share of their input."""
        return self.given - self.tokens.handed * self.sizes.share.model.boundary_bytes

    @property
    def _weights(self) -> int:
        return self.there.weights * self._element

    def front_kept(self) -> int:
        """The input of the norm."""
        return self.sizes.own

    def front_stash(self) -> int:
        return 0

    def attention_kept(self) -> int:
        """The same, what was sent, and heads before norms of their own."""
        sizes = self.sizes
        return super().attention_kept() + self._sent + sizes.qkv * sizes.share.part.qk_norm

    def attention_light(self) -> int:
        """What was sent, the output, and one log-sum-exp per head: all but the queries."""
        return super().attention_kept() - self.sizes.q_inside + self._sent

    def forward(self, *, front: bool) -> int:
        """The output of the norm, and what is sent."""
        if not front:
            return super().forward(front=False)
        return self.sizes.own + self.given + 2 * self._share

    def backward(self, *, rest: bool, front: bool, loss: int) -> int:
        moments = [2 * self._replica + self.sizes.normed] if front else [loss, self.sizes.normed]
        moments += self._rest_back(0) if rest else [self.sizes.row]
        return max(moments)

    def attention_forward(self) -> int:
        """The product, before there is an output; or what goes on."""
        sizes = self.sizes
        product = self._replica + sizes.gathered + sizes.qkv - sizes.q_inside
        return max(super().attention_forward(), sizes.turns + product)

    def attention_backward(self) -> int:
        """Attention itself; gradients of heads, as they come and turned back; those of weights and
        input, and what goes back."""
        sizes = self.sizes
        behind = self._weights + self._replica + sizes.gathered + sizes.qkv + sizes.summed
        if sizes.share.part.qk_norm:
            behind = max(behind, sizes.qkv + 3 * sizes.queries * self._wide)
        going = self._weights + sizes.own + self._share + self.given
        return sizes.turns + max(sizes.attended, 2 * sizes.qkv, behind, going)
