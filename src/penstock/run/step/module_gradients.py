"""Gradients of modules that belong to more than one rank: of replicas, and of weights that stages
share.

A step adds to `.grad`, as a backward does, and a loop may take several steps before it updates. So
what earlier steps left is set aside, the gradients of this step are added up over the ranks that
hold the same weight, and then both are put together: nothing is added up twice.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup
from torch.nn import Module, Parameter

from penstock.errors import ShapeError
from penstock.model.stages.value_tree import words_of
from penstock.run.comm.collective import add_up
from penstock.run.comm.mesh import Mesh

BUCKET = 1 << 25
"""Elements that are added up over replicas in one go."""


class StageWeight(NamedTuple):
    """A parameter by its stage and its name there."""

    stage: int
    name: str

    @classmethod
    def named(cls, text: str) -> "StageWeight":
        """From "3.head.weight": the stage, and the name in its module."""
        stage, _, name = text.partition(".")
        if not stage.isdecimal() or not name:
            raise ShapeError(
                f"{text!r} names no weight of a stage",
                hint='write the stage and the name in its module: "3.head.weight"',
            )
        return cls(int(stage), name)


Ties = tuple[tuple[StageWeight, ...], ...]
"""Weights of several stages that are one weight."""


def shared_weights(stages: Sequence[Module]) -> Ties:
    """Parameters that stand in the modules of several stages."""
    found: dict[int, list[StageWeight]] = {}
    for number, module in enumerate(stages):
        seen = {id(weight): name for name, weight in module.named_parameters()}
        for key, name in seen.items():
            found.setdefault(key, []).append(StageWeight(number, name))
    return tuple(tuple(each) for each in found.values() if len(each) > 1)


class SharedGradients:
    """The gradients of one rank's modules, some of which others hold too."""

    def __init__(
        self, mesh: Mesh, stages: Mapping[int, Module], homes: Sequence[int], ties: Ties
    ) -> None:
        self._mesh, self._stages, self._homes, self._ties = mesh, stages, homes, ties
        self._groups = [mesh.among(_devices(tie, homes)) for tie in ties]

    def refuse_unknown(self) -> None:
        """Refuse names of tied weights that the modules of this rank do not have."""
        for tie in self._ties:
            self._own(tie)

    def refuse_unlike(self) -> None:
        """Refuse tied weights of other sizes or types, which no sum over ranks could take."""
        own = {
            each: words_of(self._weight(each))
            for tie in self._ties
            for each in tie
            if self._has(each)
        }
        told: list[dict[StageWeight, str]] = [own]
        if self._ties and self._mesh.world is not None:
            told = [{} for _ in range(self._mesh.grid.ranks)]
            distributed.all_gather_object(told, own, group=self._mesh.world)
        words = {name: each for one in told for name, each in one.items()}
        for first, *others in self._ties:
            if odd := [each for each in others if words[each] != words[first]]:
                raise ShapeError(
                    f"{odd[0].stage}.{odd[0].name} is tied to {first.stage}.{first.name}, but is "
                    f"{words[odd[0]]} and that is {words[first]}",
                    hint="tie weights of one size and type",
                )

    def give_values(self) -> None:
        """The value of the first stage's weight at all that are tied to it."""
        for tie, group in zip(self._ties, self._groups):
            if own := self._own(tie):
                self._give(own, tie[0], group)

    def parameters(self) -> list[Parameter]:
        """Those of this rank, each once."""
        own = (weight for module in self._stages.values() for weight in module.parameters())
        return list(dict.fromkeys(own))

    @contextmanager
    def of_one_step(self) -> Iterator[None]:
        """Add up what the block leaves in `.grad`, and put it to what was there before."""
        if self._mesh.along("replica") is None and not self._ties:
            yield
            return
        weights = self.parameters()
        before = [weight.grad for weight in weights]
        for weight in weights:
            weight.grad = None
        yield
        self._over_replicas()
        self._over_ties()
        for weight, earlier in zip(weights, before):
            if earlier is not None:
                weight.grad = earlier if weight.grad is None else earlier.add_(weight.grad)

    def norm(self) -> float:
        """That of the gradients of all stages together; what stages share counts once."""
        first = {self._weight(tie[0]) for tie in self._ties if self._has(tie[0])}
        others = {self._weight(each) for tie in self._ties for each in tie[1:] if self._has(each)}
        counted = [
            weight.grad
            for weight in self.parameters()
            if weight.grad is not None and weight not in others - first
        ]
        squares = [grad.double().square().sum().cpu() for grad in counted]
        total = torch.stack(squares).sum().reshape(1) if squares else torch.zeros(1).double()
        add_up(total, self._mesh.pipeline)
        return sqrt(float(total))

    def _over_replicas(self) -> None:
        group = self._mesh.along("replica")
        if group is None:
            return
        weights = [weight for weight in self.parameters() if weight.requires_grad]
        reached = torch.tensor([float(weight.grad is not None) for weight in weights])
        add_up(reached, group)
        for weight, count in zip(weights, reached.tolist()):
            if count and weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        _add_up_all(
            [weight.grad for weight in weights if weight.grad is not None],
            lambda flat: add_up(flat, group),
        )

    def _over_ties(self) -> None:
        """Ties in one order on all ranks; a gradient that one of them lacks is zero."""
        for tie, group in zip(self._ties, self._groups):
            own = self._own(tie)
            if not own:
                continue
            total = torch.zeros_like(own[0])
            for weight in own:
                if weight.grad is not None:
                    total += weight.grad
            add_up(total, group)
            for weight in own:
                weight.grad = total.clone()

    @torch.no_grad()
    def _give(
        self, own: Sequence[Parameter], first: StageWeight, group: ProcessGroup | None
    ) -> None:
        value = torch.zeros_like(own[0])
        if self._has(first):
            value += self._weight(first)
        add_up(value, group)
        for weight in own:
            weight.copy_(value)

    def _own(self, tie: Sequence[StageWeight]) -> list[Parameter]:
        """What this rank holds of it, each tensor once."""
        return list(dict.fromkeys(self._weight(each) for each in tie if self._has(each)))

    def _has(self, weight: StageWeight) -> bool:
        return weight.stage in self._stages

    def _weight(self, weight: StageWeight) -> Parameter:
        names = dict(self._stages[weight.stage].named_parameters(remove_duplicate=False))
        if weight.name not in names:
            raise ShapeError(
                f"stage {weight.stage} has no parameter {weight.name!r}",
                hint=f"it has {', '.join(names)}",
            )
        return names[weight.name]


def _devices(tie: Sequence[StageWeight], homes: Sequence[int]) -> tuple[int, ...]:
    for each in tie:
        if each.stage >= len(homes):
            raise ShapeError(
                f"a tied weight is on stage {each.stage}, but stages go from 0 to {len(homes) - 1}"
            )
    return tuple(sorted({homes[each.stage] for each in tie}))


def _add_up_all(gradients: Sequence[Tensor], add: Callable[[Tensor], None]) -> None:
    """Tensors of one type in few sums: each sum of its own would take longer to start than to
    do."""
    waiting: dict[torch.dtype, list[Tensor]] = {}
    for gradient in gradients:
        bucket = waiting.setdefault(gradient.dtype, [])
        bucket.append(gradient)
        if sum(each.numel() for each in bucket) >= BUCKET:
            _add_up_bucket(waiting.pop(gradient.dtype), add)
    for bucket in waiting.values():
        _add_up_bucket(bucket, add)


def _add_up_bucket(bucket: Sequence[Tensor], add: Callable[[Tensor], None]) -> None:
    flat = torch.cat([gradient.flatten() for gradient in bucket])
    add(flat)
    start = 0
    for gradient in bucket:
        gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
        start += gradient.numel()
