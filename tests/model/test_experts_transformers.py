"""Models with experts compute what transformers computes, the auxiliary loss included."""

from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor

from loops import each
from model.expert_peers import (
    MIXTURES,
    by_file_name,
    gradients_by_file_name,
    mixture_peer,
    stated_mixture,
)
from model.peers import in_64_bits, named, sentences, whole_stage
from model.samples import Held, relative, split_backward, train
from penstock.arch.config import ModelConfig
from penstock.arch.families import from_huggingface
from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.model.attention.piece import pieces_of
from penstock.model.io.huggingface import read_weights, write
from penstock.model.stages.decoder import DecoderStage

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers"),
]

LENGTH = 48
BATCH = sentences(2, LENGTH, 50)
SLICES = ((LENGTH,), (19, 16, 13))
BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-10}
STEPS = 10


def family_of(variant: str) -> str:
    return str(MIXTURES[variant]["model_type"])


def bits(dtype: torch.dtype) -> Any:
    return in_64_bits() if dtype == torch.float64 else nullcontext()


def ours_of(variant: str, theirs: Any) -> tuple[ModelConfig, Held]:
    config = from_huggingface(stated_mixture(variant))
    tensors = by_file_name(family_of(variant), named(theirs))
    return config, whole_stage(config, tensors, LENGTH)


def our_loss(held: Held, lengths: tuple[int, ...]) -> float:
    """The mean loss, with the auxiliary one; gradients are added."""
    pieces = pieces_of(0, BATCH, lengths, 1 / BATCH.valid)
    return train([held], pieces, split_backward) / BATCH.valid


def gradients_of(held: Held, config: ModelConfig) -> dict[str, Tensor]:
    found = held.weights.named(held.weights.grad)
    if config.tied:
        found[EMBEDDING] = found[EMBEDDING] + found.pop(HEAD)
    return found


@each("variant", MIXTURES)
def test_logits_equal_those_of_transformers(variant: str) -> None:
    theirs = mixture_peer(variant)
    _, held = ours_of(variant, theirs)
    assert isinstance(held.stage, DecoderStage)
    with torch.no_grad():
        expected = theirs(BATCH.tokens).logits
    for lengths in SLICES:
        kv, parts = None, []
        for piece in pieces_of(0, BATCH, lengths, 1.0):
            parts.append(held.stage.logits(held.value, piece, None, kv))
            kv = held.forward(piece, None, kv)[2]
        assert (torch.cat(parts, dim=1) - expected).abs().max() < 1e-5


@pytest.mark.long
@each("variant", MIXTURES)
def test_loss_and_every_gradient_equal_those_of_transformers(variant: str) -> None:
    for dtype, bound in BOUNDS.items():
        with bits(dtype):
            theirs = mixture_peer(variant, dtype)
            expected = theirs(BATCH.tokens, labels=BATCH.tokens).loss
            expected.backward()
        right = gradients_by_file_name(theirs, family_of(variant))
        for lengths in SLICES:
            config, held = ours_of(variant, theirs)
            assert abs(our_loss(held, lengths) / expected.item() - 1) < bound
            found = gradients_of(held, config)
            assert found.keys() == right.keys()
            assert {name for name in right if relative(found[name], right[name]) > bound} == set()


@pytest.mark.long
@each("variant", [name for name in MIXTURES if not MIXTURES[name].get("tie_word_embeddings")])
def test_ten_steps_of_training_agree(variant: str) -> None:
    with in_64_bits():
        theirs = mixture_peer(variant, torch.float64)
    _, held = ours_of(variant, theirs)
    main = torch.nn.Parameter(held.weights.main)
    ours, other = (
        torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.1)
        for parameters in ([main], theirs.parameters())
    )
    losses = []
    for _ in range(STEPS):
        held.weights.grad.zero_()
        other.zero_grad()
        with in_64_bits():
            expected = theirs(BATCH.tokens, labels=BATCH.tokens).loss
            expected.backward()
        losses.append(our_loss(held, SLICES[1]))
        assert losses[-1] == pytest.approx(expected.item(), rel=1e-10)
        main.grad = held.weights.grad
        ours.step()
        other.step()
    assert losses[-1] < losses[0]


@pytest.mark.long
@each("variant", MIXTURES)
def test_folders_go_from_one_to_the_other(variant: str) -> None:
    from transformers import AutoModelForCausalLM

    theirs, config = mixture_peer(variant), from_huggingface(stated_mixture(variant))
    tensors = by_file_name(family_of(variant), named(theirs))
    with TemporaryDirectory() as place:
        written, saved = Path(place) / "ours", Path(place) / "theirs"
        theirs.save_pretrained(saved)
        found = dict(read_weights(saved, tensors))
        assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
        write(written, config, tensors, torch.float32)
        again, report = AutoModelForCausalLM.from_pretrained(
            written, output_loading_info=True, attn_implementation="eager"
        )
        assert not any(report[key] for key in ("missing_keys", "unexpected_keys"))
        loaded = by_file_name(family_of(variant), named(again))
        assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
