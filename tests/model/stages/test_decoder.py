"""Stages of a decoder against the judge of `verify`, which shares no code with them."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from loops import each
from model.samples import (
    EXACT,
    BackwardOf,
    again_backward,
    cut,
    gradients,
    microbatch_of,
    relative,
    split_backward,
    stages_of,
    tiny,
    train,
    whole_backward,
)
from penstock.arch.config import ModelConfig
from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.data.batch import Microbatch
from penstock.errors import RunError
from penstock.model.stages.decoder import DecoderStage
from penstock.verify.compare import HeldGradient, difference
from penstock.verify.material import parameters_of
from penstock.verify.oracle import answer, document_logits, whole_decoder

pytestmark = [
    pytest.mark.torch,
    # some processors have no products of narrow types: torch says so and takes the long way
    pytest.mark.filterwarnings("ignore:mkldnn_matmul failed"),
]

LENGTH = 11
VARIANTS = {
    "plain": tiny(),
    "tied": tiny(tied=True),
    "biased and normed": tiny(qkv_bias=True, qk_norm=True),
}
BACKWARDS = {"whole": whole_backward, "split": split_backward, "again": again_backward}


def _batch(documents: Sequence[Sequence[int]] = ((0, 4), (0,))) -> Microbatch:
    torch.manual_seed(8)
    return microbatch_of(documents, LENGTH)


def _error(
    model: ModelConfig,
    layers: Sequence[int],
    batch: Microbatch,
    lengths: Sequence[int],
    dtype: torch.dtype = torch.float64,
    backward: BackwardOf = whole_backward,
) -> float:
    """The largest of the relative errors of the loss and of every parameter's gradient."""
    right = answer(model, parameters_of(model, torch.float64), [batch])
    stages = stages_of(model, layers, batch.length, dtype)
    loss = train(stages, cut(batch, lengths), backward) / batch.valid
    named = gradients(stages, model.tied).items()
    held = [HeldGradient(name, gradient) for name, gradient in named]
    found = difference(loss, held, right)
    return max(found.loss, found.gradient)


@pytest.mark.long
@each("backward", BACKWARDS.values(), ids=BACKWARDS.keys())
@each("lengths", [(11,), (4, 7), (1, 5, 3, 2)], ids=str)
@each("model", VARIANTS.values(), ids=VARIANTS.keys())
def test_loss_and_gradients_are_those_of_the_judge(
    model: ModelConfig, lengths: Sequence[int], backward: BackwardOf
) -> None:
    assert _error(model, (2,), _batch(), lengths, backward=backward) <= 10 * EXACT


@pytest.mark.parametrize("layers", [(1, 1), (0, 2), (2, 0), (0, 1, 0, 1, 0)], ids=str)
@pytest.mark.parametrize("lengths", [(11,), (4, 7)], ids=str)
def test_any_layers_may_be_on_any_stage(layers: Sequence[int], lengths: Sequence[int]) -> None:
    assert _error(tiny(tied=True), layers, _batch(), lengths) <= 10 * EXACT


@st.composite
def batches(draw: st.DrawFn) -> tuple[Microbatch, list[int]]:
    """Rows with any documents, and any slices."""
    length = draw(st.integers(3, 16))
    inside = st.lists(st.integers(1, length - 1), unique=True, max_size=4).map(sorted)
    documents = [(0, *draw(inside)) for _ in range(draw(st.integers(1, 3)))]
    ends = [*draw(inside), length]
    torch.manual_seed(draw(st.integers(0, 2**20)))
    return microbatch_of(documents, length), [end - start for start, end in zip([0, *ends], ends)]


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(batches(), st.sampled_from(list(BACKWARDS.values())))
def test_slices_of_any_cut_over_any_documents_are_the_whole(
    case: tuple[Microbatch, list[int]], backward: BackwardOf
) -> None:
    """A gradient that should be zero is measured against a millionth of the whole one."""
    batch, lengths = case
    if batch.valid:
        model = tiny(qkv_bias=True, qk_norm=True)
        assert _error(model, (1, 1), batch, lengths, backward=backward) <= 1000 * EXACT


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("lengths", [(11,), (4, 7)], ids=str)
@pytest.mark.parametrize("backward", [split_backward, again_backward], ids=["split", "again"])
def test_a_backward_in_two_parts_or_after_a_second_forward_has_the_same_bits(
    dtype: torch.dtype, lengths: Sequence[int], backward: BackwardOf
) -> None:
    model, batch = tiny(qkv_bias=True, qk_norm=True), _batch()
    found = []
    for way in (whole_backward, backward):
        stages = stages_of(model, (1, 1), LENGTH, dtype)
        found.append((train(stages, cut(batch, lengths), way), gradients(stages, model.tied)))
    (loss, right), (other_loss, other) = found
    assert loss == other_loss
    for name, gradient in right.items():
        assert torch.equal(gradient, other[name]), name


def test_narrow_types_lose_only_their_own_roundings() -> None:
    """One rounding of bfloat16 is 2^-9 of a value; a gradient passes some dozens of them."""
    for lengths in ((11,), (4, 7)):
        assert _error(tiny(), (1, 1), _batch(), lengths, torch.bfloat16) <= 0.1
        assert _error(tiny(), (1, 1), _batch(), lengths, torch.float32) <= 1e-5


def test_zeroing_what_slices_leave_each_other_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the comparisons above would prove nothing."""
    monkeypatch.setattr("penstock.model.attention.memory.Relay.take", lambda *_: None)
    assert _error(tiny(), (2,), _batch(), (4, 7)) > 1e-3


def test_a_light_forward_keeps_its_input_and_nothing_else() -> None:
    first, second = stages_of(tiny(), (1, 1), LENGTH)
    (piece,) = cut(_batch(), (LENGTH,))
    out, kept, memory = first.forward_light(piece, None, None)
    assert (kept, memory) == (None, None)
    assert second.forward_light(piece, out, None)[1] is out
    assert second.forward_light(piece, out, None)[0] is None


def test_an_evaluation_has_the_loss_of_a_step_to_the_last_bit() -> None:
    stages = stages_of(tiny(), (1, 1), LENGTH)
    pieces = cut(_batch(), (4, 7))
    memories: list[object] = [None, None]
    losses = []
    for piece in pieces:
        x = None
        for number, stage in enumerate(stages):
            x, kept, memories[number] = stage.evaluate(piece, x, memories[number])
            assert kept is None
        losses.append(float(x))  # type: ignore[arg-type]
    assert sum(reversed(losses)) == train(stages, pieces)


def test_only_a_sequence_that_is_cut_has_a_memory_and_only_where_there_are_layers() -> None:
    empty, layered = stages_of(tiny(), (0, 2), LENGTH)
    batch = _batch()
    for lengths, expected in (((LENGTH,), False), ((4, 7), True)):
        piece = cut(batch, lengths)[0]
        x, _, nothing = empty.forward(piece, None, None)
        assert nothing is None
        assert (layered.forward(piece, x, None)[2] is not None) is expected


def test_logits_are_those_of_the_judge_whole_and_slice_by_slice() -> None:
    model, batch = tiny(), _batch(((0,),))
    (held,) = stages_of(model, (2,), LENGTH)
    stage = held.stage
    assert isinstance(stage, DecoderStage)
    values = parameters_of(model, torch.float64)
    right = document_logits(whole_decoder(model, LENGTH), values, batch.tokens[0])
    (whole,) = cut(batch, (LENGTH,))
    assert relative(stage.logits(held.value, whole, None)[0], right) <= EXACT
    parts: list[Tensor] = []
    memory = None
    for piece in cut(batch, (4, 7)):
        memory = stage.context.memory(piece, memory)
        parts.append(stage.logits(held.value, piece, None, memory)[0])
    assert relative(torch.cat(parts), right) <= EXACT


def test_a_stage_without_the_head_has_no_logits() -> None:
    first, _ = stages_of(tiny(), (1, 1), LENGTH)
    (piece,) = cut(_batch(), (LENGTH,))
    with pytest.raises(RunError, match="without the head"):
        first.stage.logits(first.value, piece, None)  # type: ignore[attr-defined]


def test_embedding_and_head_add_up_apart_even_where_they_are_tied() -> None:
    (stage,) = stages_of(tiny(tied=True), (2,), LENGTH)
    train([stage], cut(_batch(), (LENGTH,)))
    found = stage.weights.named(stage.weights.grad)
    unseen = sorted(set(range(23)) - set(_batch().tokens.flatten().tolist()))
    assert found[EMBEDDING][unseen].abs().max() == 0
    assert found[HEAD][unseen].abs().min() > 0


def test_nothing_is_recorded_by_autograd() -> None:
    (stage,) = stages_of(tiny(), (2,), LENGTH)
    (piece,) = cut(_batch(), (LENGTH,))
    stage.weights.value.requires_grad_()
    _, act, _ = stage.forward(piece, None, None)
    assert not act.out.requires_grad
    assert not act.layers[0].post.mlp.gate_up.requires_grad


def test_every_op_reads_and_writes_the_buffers_it_is_given() -> None:
    """Two steps in one stage: with other values, and with W in another buffer than I."""
    model, (piece,) = tiny(qkv_bias=True, qk_norm=True), cut(_batch(), (LENGTH,))
    (held,) = stages_of(model, (2,), LENGTH)
    train([held], [piece], split_backward)
    stage, weights = held.stage, held.weights
    other = stage.views(weights.value.clone())
    weights.value.fill_(torch.nan)
    at_once, put_off = torch.zeros_like(weights.grad), torch.zeros_like(weights.grad)
    _, act, kv = stage.forward(other, piece, None, None)
    first = stage.views(at_once)
    _, _, stash, _ = stage.input_gradient(other, first, piece, act, None, kv, None)
    stage.weight_gradient(stage.views(put_off), piece, stash)
    assert torch.equal(at_once + put_off, weights.grad)
    products = {name for name, grad in weights.named(put_off).items() if grad.any()}
    assert products == {name for name in weights.layout.parts if name.endswith("proj.weight")}
    assert not any(weights.named(at_once)[name].any() for name in products)
