"""Collectives inside a cell over torch.distributed: started, and waited for when they are needed.

Parts of unequal sizes are usual here (tokens and heads that do not divide), so most of them are
all-to-alls with sizes. A sum that is scattered is received part by part and added up in the order
of ranks: the same bits on every run, whatever the network does.
"""

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup, ReduceOp

from penstock.model.parallel.group import Pending, TensorSize
from penstock.run.comm.collective import launch_together, over_nccl

# its name before PyTorch 2.13
_OLD_GATHER = "all_gather_into_tensor"
_gather_single: Callable[..., Pending] = getattr(
    distributed, "all_gather_single", getattr(distributed, _OLD_GATHER)
)


class StartedCollective:
    """A collective under way, and what is left to do when it has ended.

    Once waited for it holds no memory: `torch.no_grad` keeps what a generator has yielded last, and
    with it what was sent and what landed would live until the next wait.
    """

    def __init__(
        self, work: Pending, end: Callable[[], object] | None, lent: Sequence[Tensor] = ()
    ) -> None:
        """`lent` are the tensors that the collective works on, made by `_lend`."""
        self._work: Pending | None = work
        self._end, self._lent = end, lent

    def wait(self) -> None:
        if self._work is None:
            return
        self._work.wait()
        if self._end is not None:
            self._end()
        for tensor in self._lent:
            tensor.set_()  # type: ignore[call-overload]  # to nothing, which the stubs do not know
        self._work = self._end = None


def _lend(tensor: Tensor) -> Tensor:
    """The same memory as another tensor: a thread of gloo drops what it was given some time after
    others were told that the work is done, so it is given what can be taken from it."""
    return tensor.data  # a view would keep the tensor that it is a view of


class CellGroup:
    """Ranks of one cell along one axis; a member's number there is its index."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self.size, self.index = group.size(), group.rank()

    def add_up(self, tensor: Tensor) -> Pending:
        return self._reduce(tensor, ReduceOp.SUM)

    def take_largest(self, tensor: Tensor) -> Pending:
        return self._reduce(tensor, ReduceOp.MAX)

    def gather(self, part: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Pending]:
        whole = part.new_empty((sum(sizes), *part.shape[1:]))
        if len(set(sizes)) == 1:
            return whole, self._gather(whole, part.contiguous())
        # The collective knows equal parts only: they are filled up, and taken out again.
        most = max(sizes)
        filled = part.new_zeros((most, *part.shape[1:]))
        filled[: len(part)] = part
        landing = part.new_empty((self.size * most, *part.shape[1:]))

        def take_out() -> None:
            kept = [landing[most * rank :][:size] for rank, size in enumerate(sizes)]
            torch.cat(kept, out=whole)

        return whole, StartedCollective(self._gather(landing, filled), take_out)

    def scatter_sum(self, whole: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Pending]:
        own = sizes[self.index]
        landing = whole.new_empty((self.size, own, *whole.shape[1:]))
        total = whole.new_empty((own, *whole.shape[1:]))
        row = prod(whole.shape[1:])
        work = self._exchange(
            landing.flatten(),
            whole.contiguous().flatten(),
            [own * row] * self.size,
            [size * row for size in sizes],
        )
        return total, StartedCollective(work, lambda: torch.sum(landing, dim=0, out=total))

    def exchange(
        self, parts: Sequence[Tensor], sizes: Sequence[TensorSize]
    ) -> tuple[list[Tensor], Pending]:
        counts = [prod(size) for size in sizes]
        landing = parts[0].new_empty(sum(counts))
        sent = torch.cat([part.flatten() for part in parts])
        work = self._exchange(landing, sent, counts, [part.numel() for part in parts])
        landed = torch.split(landing, counts)
        return [flat.view(size) for flat, size in zip(landed, sizes)], work

    def pass_on(
        self, tensors: Sequence[Tensor], sizes: Sequence[TensorSize]
    ) -> tuple[list[Tensor], Pending]:
        counts = [prod(size) for size in sizes]
        landing = tensors[0].new_empty(sum(counts))
        sent = torch.cat([tensor.flatten() for tensor in tensors])
        before, after = (self.index - 1) % self.size, (self.index + 1) % self.size
        comes, goes = [0] * self.size, [0] * self.size
        comes[before], goes[after] = len(landing), len(sent)
        work = self._exchange(landing, sent, comes, goes)
        landed = torch.split(landing, counts)
        return [flat.view(size) for flat, size in zip(landed, sizes)], work

    def _reduce(self, tensor: Tensor, how: ReduceOp.RedOpType) -> Pending:
        there, back = self._place(tensor)
        lent = _lend(there)
        with launch_together(there.device, self._group):
            work = distributed.all_reduce(lent, op=how, group=self._group, async_op=True)
        return StartedCollective(work, back, [lent])

    def _gather(self, whole: Tensor, part: Tensor) -> Pending:
        there, back = self._place(whole)
        sent, _ = self._place(part)
        with launch_together(there.device, self._group):
            work = _gather_single(there, sent, group=self._group, async_op=True)
        return StartedCollective(work, back)

    def _exchange(
        self, landing: Tensor, sent: Tensor, comes: Sequence[int], goes: Sequence[int]
    ) -> Pending:
        there, back = self._place(landing)
        left, _ = self._place(sent)
        lent = _lend(there), _lend(left)
        with launch_together(there.device, self._group):
            work = distributed.all_to_all_single(
                *lent, list(comes), list(goes), group=self._group, async_op=True
            )
        return StartedCollective(work, back, lent)

    def _place(self, tensor: Tensor) -> tuple[Tensor, Callable[[], object] | None]:
        """Where the collective works, and what brings its result to the tensor: a GPU's tensor goes
        by way of the host where its ranks talk through gloo."""
        if tensor.device.type == "cpu" or over_nccl(self._group, tensor.device):
            return tensor, None
        there = tensor.cpu()
        return there, lambda: tensor.copy_(there)
