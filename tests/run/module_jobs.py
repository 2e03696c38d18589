"""A small model of plain modules, whole and over ranks."""

import torch
from torch import Tensor, nn
from torch.distributed import group
from torch.nn import functional

from penstock.core.homes import weight_homes
from penstock.core.schedule import Schedule
from penstock.data.batch import Microbatch
from penstock.lower import lower
from penstock.model.attention.piece import Piece, pieces_of
from penstock.model.stages.module_stage import ModuleStage
from penstock.run.comm.gloo import Gloo
from penstock.run.execute.boundary import Boundary
from penstock.run.execute.executor import Executor, by_stage
from penstock.run.process.rendezvous import Connection

WIDTH, WORDS, TOKENS = 6, 11, 5
Gradients = dict[str, Tensor]


class Middle(nn.Module):
    """Weights of every sort: behind a product, a sum, a norm, used twice, and not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.RMSNorm(WIDTH)
        self.shift = nn.Parameter(torch.randn(WIDTH))
        self.unused = nn.Parameter(torch.randn(WIDTH))
        self.frozen = nn.Parameter(torch.randn(WIDTH), requires_grad=False)
        self.dropout = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        once = functional.gelu(self.first(self.norm(x))) * self.frozen
        return self.dropout(x + self.first(once) * self.shift)


def model(stages: int) -> list[nn.Module]:
    """The same weights on every call."""
    torch.manual_seed(5)
    modules: list[nn.Module] = [Middle() for _ in range(stages)]
    modules[0] = nn.Sequential(nn.Embedding(WORDS, WIDTH), modules[0])
    modules[-1] = nn.Sequential(modules[-1], nn.Linear(WIDTH, WORDS, bias=False))
    return [module.double() for module in modules]


def summed_loss(out: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(out.flatten(0, 1), labels.flatten(), reduction="sum")


def microbatches(count: int) -> list[Microbatch]:
    numbers = torch.Generator().manual_seed(7)
    words = torch.randint(WORDS, (count, 2, TOKENS + 1), generator=numbers)
    return [Microbatch(row[:, :-1], row[:, 1:], ((0,), (0,))) for row in words]


def pieces(count: int) -> list[Piece]:
    scale = 1 / (2 * TOKENS * count)
    return [pieces_of(mb, item, (TOKENS,), scale)[0] for mb, item in enumerate(microbatches(count))]


def named(modules: dict[int, nn.Module]) -> Gradients:
    return {
        f"{stage}.{name}": parameter.grad
        for stage, module in modules.items()
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }


def plain(stages: int, count: int) -> tuple[float, Gradients]:
    """Loss and gradients by autograd alone."""
    modules = model(stages)
    total = 0.0
    for piece in pieces(count):
        loss = summed_loss(nn.Sequential(*modules)(piece.tokens), piece.labels)
        (loss * piece.scale).backward()
        total += loss.item()
    return total, named(dict(enumerate(modules)))


def run_schedule(connection: Connection, schedule: Schedule) -> tuple[float, Gradients]:
    """One step of a schedule over the ranks."""
    stages, rank = schedule.shape.stages, connection.rank
    modules = model(stages)
    mine = {s: modules[s] for s, devices in weight_homes(schedule).items() if rank in devices}
    wrapped = {
        s: ModuleStage(module, summed_loss if s == stages - 1 else None)
        for s, module in mine.items()
    }
    assert group.WORLD is not None
    transport = Gloo(group.WORLD)
    boundary = Boundary((WIDTH,) * (stages - 1), torch.float64, torch.device("cpu"))
    executor = Executor(
        lower(schedule), rank, by_stage(wrapped), transport=transport, boundary=boundary
    )
    losses = executor.step(pieces(schedule.shape.microbatches))
    transport.close()
    return sum(loss.item() for loss in losses), named(mine)
