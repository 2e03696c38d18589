"""Loops whose stages give several tensors, share weights, or are trained by replicas."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import penstock
from penstock.verify import PipelineVerdict

WORDS, WIDTH, ROWS, TOKENS = 11, 6, 8, 5
Named = dict[str, Tensor]


class First(nn.Module):
    """Gives a dictionary: hidden states, words (whole numbers), and a number for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)

    def forward(self, given: dict[str, Tensor], bias: Tensor) -> dict[str, Any]:
        x = self.embedding(given["words"]) + bias[:, None, None]
        return {"x": x.tanh(), "words": given["words"], "none": None, "rows": (x.mean((1, 2)),)}


class Middle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, given: dict[str, Any], bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, (rows,) = given["x"], given["rows"]
        return x + self.linear(x).relu(), given["words"], rows * bias


class Behind(nn.Module):
    """Takes and gives a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(
        self, given: tuple[Tensor, Tensor, Tensor], bias: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        x, words, rows = given
        return x + self.linear(x).relu(), words, rows


class Last(nn.Module):
    """Shares the matrix of the first stage."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, given: tuple[Tensor, Tensor, Tensor], bias: Tensor) -> dict[str, Tensor]:
        x, words, rows = given
        scale = 1 + words.to(x.dtype).mean(1) / WORDS + rows
        return {"logits": (x * scale[:, None, None]) @ self.weight.T}


def stages() -> list[nn.Module]:
    torch.manual_seed(4)
    first = First()
    made = [first, Middle(), Behind(), Last(first.embedding.weight)]
    return [module.double() for module in made]


def loss_of(out: dict[str, Tensor], targets: tuple[Tensor, Tensor]) -> Tensor:
    labels, scale = targets
    each = functional.cross_entropy(
        out["logits"].flatten(0, 1), labels.flatten(), ignore_index=-100
    )
    return each * scale.mean()


def weight_of(targets: tuple[Tensor, Tensor]) -> Tensor:
    return (targets[0] != -100).sum()


def batch(step: int, rows: int = ROWS) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor]]:
    numbers = torch.Generator().manual_seed(step)
    words = torch.randint(WORDS, (rows, TOKENS + 1), generator=numbers)
    labels = words[:, 1:].clone()
    labels[:2] = -100
    labels[3, 2:] = -100
    scale = torch.ones(rows, dtype=torch.float64)
    return {"words": words[:, :-1]}, (labels, scale)


def bias(step: int, rows: int = ROWS) -> Tensor:
    return torch.linspace(0.5, 1.5, rows).double() + step


def one_process(microbatches: int, batches: int, steps: int) -> tuple[list[float], Named, float]:
    """Losses, weights and the last norm of steps over so many batches, clipped."""
    modules = stages()
    model = nn.ModuleList(modules)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    losses, norm = [], 0.0
    for step in range(steps):
        total, parts = 0.0, []
        for number in range(batches):
            parts += _cut(batch(batches * step + number), bias(step), microbatches)
        counts = sum(float(weight_of(targets)) for _, targets, _ in parts)
        for x, targets, beside in parts:
            if not (count := float(weight_of(targets))):
                continue
            for module in modules:
                x = module(x, bias=beside)
            loss = loss_of(x, targets) * count / counts
            loss.backward()
            total += loss.item()
        norm = float(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses, _named(dict(enumerate(modules))), norm


def _cut(given: Any, beside: Tensor, count: int) -> list[Any]:
    inputs, (labels, scale) = given
    return [
        ({"words": words}, (own, part), few)
        for words, own, part, few in zip(
            *(each.chunk(count) for each in (inputs["words"], labels, scale, beside))
        )
    ]


def _named(modules: dict[int, nn.Module]) -> Named:
    return {
        f"{number}.{name}": value.detach()
        for number, module in modules.items()
        for name, value in module.named_parameters()
    }


def train(
    _: object, schedule: penstock.Schedule, replicas: int, steps: int
) -> tuple[list[float], Named, float]:
    """The same over ranks; each replica has its own batch."""
    pipeline = penstock.pipeline(
        stages(), schedule, loss=loss_of, weight=weight_of, replicas=replicas
    )
    optimizer = torch.optim.AdamW(pipeline.parameters(), lr=0.02)
    losses, norm = [], 0.0
    for step in range(steps):
        own = batch(replicas * step + pipeline.replica)
        losses.append(pipeline.step(own, bias=bias(step)))
        norm = pipeline.clip_grad_norm(0.1)
        optimizer.step()
        optimizer.zero_grad()
    pipeline.close()
    return losses, _named(pipeline.stages), norm


def accumulated(_: object, schedule: penstock.Schedule, replicas: int) -> Named:
    """Gradients of two steps with no update between."""
    pipeline = penstock.pipeline(
        stages(), schedule, loss=loss_of, weight=weight_of, replicas=replicas
    )
    for step in range(2):
        pipeline.step(batch(0), bias=bias(step))
    pipeline.close()
    return _gradients(pipeline)


def one_accumulated() -> Named:
    modules = stages()
    for step in range(2):
        parts = _cut(batch(0), bias(step), 4)
        counts = sum(float(weight_of(targets)) for _, targets, _ in parts)
        for x, targets, beside in parts:
            if count := float(weight_of(targets)):
                for module in modules:
                    x = module(x, bias=beside)
                (loss_of(x, targets) * count / counts).backward()
    return {
        f"{number}.{name}": weight.grad
        for number, module in enumerate(modules)
        for name, weight in module.named_parameters()
        if weight.grad is not None
    }


def _gradients(pipeline: Any) -> Named:
    return {
        f"{number}.{name}": weight.grad
        for number, module in pipeline.stages.items()
        for name, weight in module.named_parameters()
    }


def made_one_by_one(_: object, schedule: penstock.Schedule) -> Named:
    """Each rank makes its own stages, whose tied weights begin with different values."""

    def make(number: int) -> nn.Module:
        torch.manual_seed(10 + number)
        first = First()
        return [first, Middle(), Behind(), Last(first.embedding.weight)][number].double()

    tied = [("0.embedding.weight", "3.weight")]
    pipeline = penstock.pipeline(make, schedule, loss=loss_of, weight=weight_of, tied=tied)
    optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.1)
    for step in range(2):
        pipeline.step(batch(step), bias=bias(step))
        optimizer.step()
        optimizer.zero_grad()
    pipeline.close()
    return _named(pipeline.stages)


def verified(_: object, schedule: penstock.Schedule, replicas: int) -> PipelineVerdict:
    pipeline = penstock.pipeline(
        stages(), schedule, loss=loss_of, weight=weight_of, replicas=replicas
    )
    verdict = penstock.verify(pipeline, batch(pipeline.replica), bias=bias(0))
    assert all(weight.grad is None for weight in pipeline.parameters())
    pipeline.close()
    return verdict


def verified_with_a_mistake(_: object, schedule: penstock.Schedule) -> PipelineVerdict:
    """A stage that doubles its output on a rank, but not in one process."""
    made = stages()
    made[1] = Doubling(made[1])
    pipeline = penstock.pipeline(made, schedule, loss=loss_of, weight=weight_of)
    verdict = penstock.verify(pipeline, batch(0), bias=bias(0))
    pipeline.close()
    return verdict


class Doubling(nn.Module):
    """Forgets what it does when it is copied."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.factor = inner, 2.0

    def __deepcopy__(self, memo: Any) -> nn.Module:
        copied = Doubling(self.inner)
        copied.factor = 1.0
        return copied

    def forward(self, given: Any, **keywords: Tensor) -> Any:
        x, *others = self.inner(given, **keywords)
        return (x * self.factor, *others)
