"""FFN Fusion, "It works when" 4: the dependency matrix is that of its definition, has nothing in
front of the block that is left out, and a zero row for a block that is an identity."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fusion.samples import Named, run_model, weights_of
from penstock.arch.blocks import LayerBlock
from penstock.arch.config import ModelConfig
from penstock.data import Microbatch
from penstock.data.batch import IGNORE
from penstock.fusion.dependency import Dependencies, measure_dependencies
from penstock.fusion.residual_stream import ResidualStream, Sequence, mean_loss
from penstock.verify.oracle import answer, whole_decoder
from penstock.verify.plain_decoder import stored_name

pytestmark = pytest.mark.torch

MODEL = run_model((8, 5, 7))
LENGTH = 13


def microbatch(seed: int = 1) -> Microbatch:
    tokens = torch.randint(23, (2, LENGTH), generator=torch.Generator().manual_seed(seed))
    labels = tokens.roll(-1, 1)
    labels[:, -1] = IGNORE
    return Microbatch(tokens, labels, ((0,), (0,)))


def measured(model: ModelConfig, tensors: Named) -> Dependencies:
    stream = ResidualStream(model, tensors, LENGTH)
    return measure_dependencies(stream, [Sequence(microbatch()), Sequence(microbatch(2))])


def block_outputs(tensors: Named, tokens: Tensor, left_out: int | None) -> list[Tensor]:
    """What each block of the plain decoder adds, where one of them is the identity."""
    decoder, found = whole_decoder(MODEL, LENGTH), list[Tensor]()

    def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        last = inputs[0] if len(found) == left_out else output
        found.append(last - inputs[0])
        return last

    for layer in decoder.layers.values():
        layer.register_forward_hook(hook)
    own = {name: tensors[stored_name(name)] for name, _ in decoder.named_parameters()}
    functional_call(decoder, own, (tokens,))
    return found


def test_section_3_the_matrix_is_that_of_its_definition() -> None:
    """Every block in every pass, of another implementation, those in front too."""
    tensors, right = weights_of(MODEL), np.zeros((5, 5))
    for seed in (1, 2):
        tokens = microbatch(seed).tokens
        intact = block_outputs(tensors, tokens, None)
        for left_out in range(5):
            for at, there in enumerate(block_outputs(tensors, tokens, left_out)):
                if at != left_out:
                    cosines = functional.cosine_similarity(intact[at], there, dim=-1)
                    right[left_out, at] += float((1 - cosines).mean()) / 2
    found = measured(MODEL, tensors)
    assert found.tokens == 4 * LENGTH
    assert np.abs(found.matrix - right).max() < 1e-12
    assert np.abs(np.tril(right)).max() < 1e-12
    assert (np.tril(found.matrix) == 0).all()
    assert (found.matrix[np.triu_indices(5, 1)] > 1e-6).all()


def test_an_identity_has_a_zero_row_and_column() -> None:
    tensors = weights_of(MODEL)
    tensors["model.layers.2.mlp.down_proj.weight"].zero_()
    found = measured(MODEL, tensors)
    assert (found.matrix[2] == 0).all()
    assert (found.matrix[:, 2] == 0).all()
    assert found.matrix[1, 3] > 0
    assert found.moved[2] == found.added[2] == 0


def test_cheaper_measures_are_those_of_each_block() -> None:
    found, sizes = measured(MODEL, weights_of(MODEL)), np.zeros(5)
    for seed in (1, 2):
        intact = block_outputs(weights_of(MODEL), microbatch(seed).tokens, None)
        x = weights_of(MODEL)["model.embed_tokens.weight"][microbatch(seed).tokens]
        for at, added in enumerate(intact):
            sizes[at] += float((added.norm(dim=-1) / x.norm(dim=-1)).mean()) / 2
            x = x + added
    assert np.abs(found.added - sizes).max() < 1e-12


def test_the_loss_is_that_of_the_oracle_and_an_order_changes_it() -> None:
    tensors, batch = weights_of(MODEL), [microbatch(), microbatch(2)]
    stream, data = ResidualStream(MODEL, tensors, LENGTH), [*map(Sequence, batch)]
    right = answer(MODEL, tensors, batch).loss
    assert mean_loss(stream, data) == pytest.approx(right, rel=1e-12)
    assert measured(MODEL, tensors).loss == pytest.approx(right, rel=1e-12)
    reverse = mean_loss(stream, data, (0, 3, 2, 1, 4))
    assert reverse != right
    assert reverse == pytest.approx(right, rel=0.2)


def test_a_stage_without_any_attention_is_measured_too() -> None:
    plain = ModelConfig(2, 12, 20, 4, 2, 6, 23, element_bytes=8, blocks=(LayerBlock(20, False),))
    assert measured(plain, weights_of(plain)).matrix[0, 1] > 0
