"""Every family trains as it does in the transformers library: in 64 bits, and for ten steps."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from loops import each
from model.peers import VARIANTS, in_64_bits, in_files, named, peer, sentences, stated, whole_stage
from model.samples import Held, split_backward, train
from penstock.arch.config import ModelConfig
from penstock.arch.families import from_huggingface
from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.data.batch import IGNORE
from penstock.model.attention.piece import pieces_of

pytestmark = [
    pytest.mark.torch,
    pytest.mark.long,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers"),
]

LENGTH = 48
SLICES = (LENGTH,), (19, 16, 13)
BATCH = sentences(2, LENGTH, 50)
STEPS = 10


def their_loss(theirs: Any) -> Tensor:
    logits = theirs(BATCH.tokens).logits
    return cross_entropy(logits.flatten(0, 1), BATCH.labels.flatten(), ignore_index=IGNORE)


def our_loss(held: Held, lengths: tuple[int, ...]) -> float:
    """The mean loss; gradients are added."""
    pieces = pieces_of(0, BATCH, lengths, 1 / BATCH.valid)
    return train([held], pieces, split_backward) / BATCH.valid


def gradients_of(held: Held, config: ModelConfig) -> dict[str, Tensor]:
    found = dict(held.weights.named(held.weights.grad))
    if config.tied:
        found[EMBEDDING] = found[EMBEDDING] + found.pop(HEAD)
    return found


@each("variant", VARIANTS)
def test_logits_loss_and_every_gradient_agree_in_64_bits_whole_and_in_slices(variant: str) -> None:
    with in_64_bits():
        theirs = peer(stated(variant), dtype=torch.float64)
        expected = their_loss(theirs)
        expected.backward()
    config = from_huggingface(stated(variant))
    right = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for lengths in SLICES:
        held = whole_stage(config, named(theirs), LENGTH)
        assert our_loss(held, lengths) == pytest.approx(expected.item(), rel=1e-10)
        for name, found in gradients_of(held, config).items():
            wanted = in_files(config, right, name)
            assert (found - wanted).norm() / wanted.norm() < 1e-10, (lengths, name)


@each("variant", [name for name in VARIANTS if "tied" not in name])
def test_ten_steps_of_training_agree(variant: str) -> None:
    with in_64_bits():
        theirs = peer(stated(variant), dtype=torch.float64)
    config = from_huggingface(stated(variant))
    held = whole_stage(config, named(theirs), LENGTH)
    main = torch.nn.Parameter(held.weights.main)
    ours = torch.optim.AdamW([main], lr=3e-3, weight_decay=0.1)
    other = torch.optim.AdamW(theirs.parameters(), lr=3e-3, weight_decay=0.1)
    losses = []
    for _ in range(STEPS):
        held.weights.grad.zero_()
        other.zero_grad()
        with in_64_bits():
            expected = their_loss(theirs)
            expected.backward()
        losses.append(our_loss(held, SLICES[1]))
        assert losses[-1] == pytest.approx(expected.item(), rel=1e-10)
        main.grad = held.weights.grad
        ours.step()
        other.step()
    assert losses[-1] < losses[0]
