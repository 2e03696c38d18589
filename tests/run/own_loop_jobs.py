"""Training loops as a user writes them: plain modules, a torch optimizer, public names only."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

import penstock

ROWS, TOKENS, WORDS = 8, 5, 11
Weights = dict[str, Tensor]


class Turned(nn.Module):
    """Gives a view that is not contiguous, and has buffers that a forward changes."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.linear = nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(self.norm(x.transpose(1, 2)).transpose(1, 2))
        return functional.gelu(y).transpose(0, 1).contiguous().transpose(0, 1)


def module(stage: int, stages: int) -> nn.Module:
    """The same weights on every call; each boundary has another width."""
    torch.manual_seed(stage)
    made: nn.Module = Turned(4 + stage, 5 + stage)
    if stage == 0:
        made = nn.Sequential(nn.Embedding(WORDS, 4), made)
    if stage == stages - 1:
        made = nn.Sequential(made, nn.Linear(5 + stage, WORDS))
    return made.double()


def mean_loss(out: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(out.flatten(0, 1), targets.flatten())


def batch(step: int) -> tuple[Tensor, Tensor]:
    numbers = torch.Generator().manual_seed(step)
    words = torch.randint(WORDS, (ROWS, TOKENS + 1), generator=numbers)
    return words[:, :-1], words[:, 1:]


def one_process(stages: int, microbatches: int, steps: int) -> tuple[list[float], Weights]:
    """What the pipeline has to arrive at: losses of some steps, then all weights and buffers."""
    model = nn.Sequential(*(module(stage, stages) for stage in range(stages)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        pairs = zip(*(each.chunk(microbatches) for each in batch(step)))
        parts = [mean_loss(model(x), y) / microbatches for x, y in pairs]
        for part in parts:
            part.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sum(part.item() for part in parts))
    return losses, dict(model.state_dict())


def train(_: object, schedule: penstock.Schedule, steps: int) -> tuple[list[float], Weights]:
    """One rank's loop, and what it holds afterwards."""
    stages = schedule.shape.stages
    pipeline = penstock.run.ModulePipeline(
        schedule, [module(stage, stages) for stage in range(stages)], mean_loss
    )
    optimizer = torch.optim.AdamW(pipeline.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        losses.append(pipeline.step(*batch(step)))
        optimizer.step()
        optimizer.zero_grad()
    pipeline.close()
    return losses, _held(pipeline)


def _held(pipeline: penstock.run.ModulePipeline) -> Weights:
    return {
        f"{stage}.{name}": value
        for stage, module in pipeline.stages.items()
        for name, value in module.state_dict().items()
    }


def evaluate(_: object, schedule: penstock.Schedule) -> tuple[float, bool]:
    """The loss of a batch forward only, and whether that has left any gradient."""
    stages = schedule.shape.stages
    made = lambda stage: module(stage, stages).eval()  # noqa: E731
    pipeline = penstock.run.ModulePipeline(schedule, made, mean_loss)
    loss = pipeline.evaluate(*batch(0))
    pipeline.close()
    return loss, any(parameter.grad is not None for parameter in pipeline.parameters())


def refused(_: object, mistake: Callable[[], object]) -> str:
    """The words with which a rank is refused."""
    try:
        mistake()
    except penstock.PenstockError as refusal:
        return str(refusal)
    return ""


def pair(**changes: int) -> penstock.Schedule:
    return penstock.build("1f1b", **{"devices": 2, "microbatches": 4} | changes)  # type: ignore[arg-type]


def stepped(stage_1: nn.Module, loss: Callable[..., Tensor] = mean_loss) -> float:
    """A step with another second stage."""
    first = module(0, 2)
    pipeline = penstock.run.ModulePipeline(pair(), [first, stage_1], loss)
    return pipeline.step(*batch(0))


class Numbered(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        return x, 3


def a_number() -> float:
    return stepped(Numbered())


def changed_in_place() -> float:
    return stepped(nn.Sequential(nn.ReLU(inplace=True), module(1, 2)))


def whole_numbers() -> float:
    return stepped(nn.Sequential(module(1, 2), Rounded()))


class Rounded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.long()


def another_type() -> float:
    return stepped(module(1, 2).float())


class Parted(nn.Module):
    """Trains its own weights, but parts them from what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = module(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x.detach())
        return out


def a_detached_input() -> float:
    return stepped(Parted())


class Unused(nn.Module):
    """Has weights that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(5, WORDS, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.detach()


def weights_without_gradient() -> float:
    return stepped(Unused())


def other_words_on_each_rank() -> float:
    pipeline = penstock.pipeline(lambda n: module(n, 2), pair(), loss=mean_loss)
    return pipeline.step(batch(torch.distributed.get_rank()))


def three_parts() -> float:
    pipeline = penstock.pipeline(lambda n: module(n, 2), pair(), loss=mean_loss)
    return pipeline.step(*batch(0), batch(0)[0])


def nothing_that_counts() -> float:
    stages = [module(stage, 2) for stage in range(2)]
    pipeline = penstock.pipeline(stages, pair(), loss=mean_loss, weight=lambda targets: 0.0)
    return pipeline.step(batch(0))


def no_microbatches() -> object:
    return penstock.pipeline([module(stage, 2) for stage in range(2)], "1f1b", loss=mean_loss)


def three_modules_for_two_devices() -> object:
    stages = [module(stage, 3) for stage in range(3)]
    return penstock.pipeline(stages, "interleaved", microbatches=4, loss=mean_loss)


def an_unknown_tie() -> object:
    stages = [module(stage, 2) for stage in range(2)]
    tied = [("0.0.weight", "1.nope.weight")]
    return penstock.pipeline(stages, "1f1b", microbatches=4, loss=mean_loss, tied=tied)


def a_tie_of_other_sizes() -> object:
    tied = [("0.0.weight", "1.1.weight")]  # [11, 4] and [11, 6]
    return penstock.pipeline(lambda n: module(n, 2), pair(), loss=mean_loss, tied=tied)


def three_replicas_of_two_ranks() -> object:
    stages = [module(stage, 2) for stage in range(2)]
    return penstock.pipeline(stages, "1f1b", microbatches=4, loss=mean_loss, replicas=3)


def a_wrong_size() -> float:
    return stepped(nn.Linear(99, WORDS))


def a_loss_of_many_numbers() -> float:
    return stepped(module(1, 2), lambda out, targets: out.sum(-1))


def another_batch() -> float:
    rank = torch.distributed.get_rank()
    pipeline = penstock.run.ModulePipeline(pair(), lambda stage: module(stage, 2), mean_loss)
    inputs, targets = batch(0)
    return pipeline.step(inputs[: ROWS - 4 * rank], targets[: ROWS - 4 * rank])


def another_schedule() -> object:
    schedule = pair(microbatches=4 + torch.distributed.get_rank())
    return penstock.run.ModulePipeline(schedule, lambda stage: module(stage, 2), mean_loss)


def an_uneven_batch() -> float:
    pipeline = penstock.run.ModulePipeline(pair(), lambda stage: module(stage, 2), mean_loss)
    return pipeline.step(*(each[:7] for each in batch(0)))


def too_few_ranks() -> object:
    return penstock.run.ModulePipeline(pair(devices=3), lambda stage: module(stage, 3), mean_loss)
