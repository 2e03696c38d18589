"""Modules and a training loop of your own, over a pipeline of two processes:

torchrun --standalone --nproc-per-node 2 examples/own_modules.py
"""

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

import penstock

WORDS, WIDTH, STEPS = 64, 32, 40


def make_stages() -> list[nn.Module]:
    """The same weights on every rank, which keeps those of its own stages."""
    torch.manual_seed(0)
    hidden = [[nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU()] for _ in range(2)]
    first = nn.Sequential(nn.Embedding(WORDS, WIDTH), *hidden[0])
    return [first, nn.Sequential(*hidden[1], nn.Linear(WIDTH, WORDS))]


def loss_of(output: Tensor, targets: Tensor) -> Tensor:
    """One number for a microbatch; the loss of a batch is the mean over its microbatches."""
    return functional.cross_entropy(output.flatten(0, 1), targets.flatten())


def batch_of(step: int) -> tuple[Tensor, Tensor]:
    """The same batch on every rank: 16 rows of words, each followed by three times itself."""
    words = torch.randint(WORDS, (16, 8), generator=torch.Generator().manual_seed(step))
    return words, (3 * words + 1) % WORDS


def main() -> None:
    distributed.init_process_group("gloo")
    pipeline = penstock.pipeline(make_stages(), "zb-h1", microbatches=4, loss=loss_of)
    optimizer = torch.optim.AdamW(pipeline.parameters(), lr=0.02)
    for step in range(STEPS):
        loss = pipeline.step(batch_of(step))
        pipeline.clip_grad_norm(1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 and distributed.get_rank() == 0:
            print(f"step {step}: loss {loss:.3f}")
    held_out = pipeline.evaluate(batch_of(STEPS))
    verdict = penstock.verify(pipeline, batch_of(STEPS))
    if distributed.get_rank() == 0:
        print(f"held out: loss {held_out:.3f}")
        print(verdict)
    pipeline.close()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
