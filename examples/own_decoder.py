"""A decoder of transformers that Penstock does not know, trained over a pipeline of two processes:

torchrun --standalone --nproc-per-node 2 examples/own_decoder.py
"""

import torch
from torch import Tensor, distributed
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

import penstock

WORDS, STEPS = 64, 30


def make_model() -> GPTNeoXForCausalLM:
    """The same weights on every rank; from_pretrained(folder) gives those of a checkpoint."""
    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
    )
    return GPTNeoXForCausalLM(config)  # type: ignore[no-untyped-call]


def batch_of(step: int) -> tuple[Tensor, Tensor]:
    """Words that count up, and the word that follows each; the last one is followed by none."""
    start = torch.randint(WORDS, (8, 1), generator=torch.Generator().manual_seed(step))
    words = (start + torch.arange(16)) % WORDS
    labels = words.roll(-1, 1)
    labels[:, -1] = -100
    return words, labels


def main() -> None:
    distributed.init_process_group("gloo")
    pipeline = penstock.pipeline(
        penstock.run.decoder_stages(make_model(), stages=2),
        penstock.build("seq1f1b", devices=2, microbatches=4, slices=2),
        loss=penstock.run.token_loss,
        weight=penstock.run.token_count,
    )
    optimizer = torch.optim.AdamW(pipeline.parameters(), lr=0.005)
    for step in range(STEPS):
        loss = pipeline.step(batch_of(step))
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 and distributed.get_rank() == 0:
            print(f"step {step}: loss {loss:.3f}")
    verdict = penstock.verify(pipeline, batch_of(STEPS))
    if distributed.get_rank() == 0:
        print(verdict)
    pipeline.close()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
