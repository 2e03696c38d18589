"""The end of the model: last norm, head and loss against autograd."""

import pytest
import torch
from torch.nn import functional

from model.samples import EXACT, VOCABULARY, cut, microbatch_of, random_weights, relative, tiny
from penstock.arch.parameters import HEAD, LAST_NORM
from penstock.data.batch import IGNORE
from penstock.model.layers.output_layer import OutputLayer
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import result_of

pytestmark = pytest.mark.torch

MODEL = tiny()
SIZES = {LAST_NORM: (MODEL.hidden,), HEAD: (VOCABULARY, MODEL.hidden)}


def test_loss_and_gradients_are_those_of_autograd() -> None:
    torch.manual_seed(6)
    weights = random_weights(SIZES)
    layer = OutputLayer(MODEL)
    own, d_own = (
        layer.views(Views(weights.layout, flat)) for flat in (weights.value, weights.grad)
    )
    piece = cut(microbatch_of([[0], [0, 4]], 9), (4, 5))[1]
    x = torch.randn(2 * 5, MODEL.hidden, dtype=torch.float64)
    loss, dx = result_of(layer.backward(own, d_own, x, piece))

    leaves = {n: t.clone().requires_grad_() for n, t in weights.named(weights.main).items()}
    leaf = x.clone().requires_grad_()
    logits = (
        functional.rms_norm(leaf, (MODEL.hidden,), leaves[LAST_NORM], MODEL.norm_epsilon)
        @ leaves[HEAD].t()
    )
    labels = piece.labels.flatten()
    right = functional.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
    expected = torch.autograd.grad(right * piece.scale, (leaf, *leaves.values()))
    assert relative(layer.logits(own, x), logits.detach()) <= EXACT
    assert relative(loss, right.detach()) <= EXACT
    assert torch.equal(result_of(layer.loss(own, x, piece)), loss)
    found = (dx, *weights.named(weights.grad).values())
    for ours, plain in zip(found, expected, strict=True):
        assert relative(ours, plain) <= EXACT
