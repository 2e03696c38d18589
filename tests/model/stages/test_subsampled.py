"""A decoder that leaves out tokens, in one process: what must hold whatever the schedule."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from loops import each
from model.samples import CPU, EXACT, VOCABULARY, Held, fill, microbatch_of, relative, tiny
from penstock.arch.config import ModelConfig
from penstock.arch.draws import Moment
from penstock.arch.subsampling import Subsampling
from penstock.data.batch import IGNORE, Microbatch
from penstock.model.attention.piece import Piece, pieces_of
from penstock.model.attention.piece_levels import PieceLevels
from penstock.model.stages.generation import Generation
from penstock.run.program.layout import Layout
from penstock.run.program.piece_levels import padding_of, with_levels, with_moment
from penstock.run.step.stages import empty_weights, stage_of
from penstock.schedules import build

pytestmark = pytest.mark.torch

NESTED = "T(T(T)T)T"
LENGTH = 19


def model_of(structure: str = NESTED, keep: float = 0.6) -> ModelConfig:
    return replace(tiny(structure.count("T")), subsampling=Subsampling(structure, keep))


def whole_stage(model: ModelConfig, length: int = LENGTH) -> Held:
    """All layers in one stage."""
    layout = Layout.of(model, build("gpipe", devices=1, microbatches=1), length)
    layout = replace(layout, dtype=torch.float64)
    weights = empty_weights(layout, 0, CPU)
    fill(weights, model)
    return Held.of(stage_of(layout, 0, CPU), weights)


def random_tokens() -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(VOCABULARY, (LENGTH,), generator=generator)


def training(model: ModelConfig, microbatch: Microbatch, lengths: Sequence[int]) -> list[Piece]:
    """The slices of a microbatch in a first step."""
    pieces = pieces_of(0, microbatch, lengths, 1 / microbatch.valid)
    assert model.subsampling is not None
    cut = with_levels(pieces, [microbatch], [lengths], model.subsampling)
    return with_moment(cut, model.subsampling, 0, 0)


def set_weights(held: Held, **values: float | Tensor) -> None:
    """Fill every parameter whose name ends so."""
    for name, tensor in held.weights.named(held.weights.main).items():
        for end, value in values.items():
            if name.endswith(end):
                tensor.copy_(torch.as_tensor(value, dtype=tensor.dtype).expand_as(tensor))
    held.weights.publish()


def train(held: Held, pieces: Sequence[Piece]) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of whole sequences."""
    held.weights.grad.zero_()
    (piece,) = pieces
    _, act, kv = held.forward(piece, None, None)
    loss = held.backward(piece, act, None, kv, None)[3]
    assert loss is not None
    named = held.weights.named(held.weights.grad)
    return float(loss), {name: gradient.clone() for name, gradient in named.items()}


def test_section_5_1_with_everything_kept_it_is_the_plain_decoder_bit_for_bit() -> None:
    """All scores are above 1, and every c is 1: the first element of each token is 5 everywhere,
    and scorers look at nothing else."""
    model, batch = model_of(keep=1.0), microbatch_of([[0]] * 2, LENGTH)
    kept, plain = whole_stage(model), whole_stage(replace(model, subsampling=None))
    values = plain.weights.named(plain.weights.main)
    values["model.embed_tokens.weight"][:, 0] = 5
    for name, tensor in values.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensor[0] = 0
    plain.weights.publish()
    set_weights(kept, **values, bypass=1.0, scorer=torch.eye(model.hidden)[0])
    found = (
        train(kept, training(model, batch, [LENGTH])),
        train(plain, pieces_of(0, batch, [LENGTH], 1 / batch.valid)),
    )
    (loss, own), (right, gradients) = found
    assert loss == right
    for name, wanted in gradients.items():
        if "embed_tokens" not in name:  # scorers have a gradient too, into the first element
            assert torch.equal(own[name], wanted), name


def test_section_5_2_without_bypass_what_is_inside_has_no_effect_and_no_gradient() -> None:
    model, batch = model_of("T(TT)T"), microbatch_of([[0]], LENGTH)
    held = whole_stage(model)
    set_weights(held, bypass=0.0)
    loss, gradients = train(held, training(model, batch, [LENGTH]))
    inner = {name: g for name, g in gradients.items() if ".layers.1." in name or ".2." in name}
    assert inner
    assert all(not gradient.any() for gradient in inner.values())
    for name, tensor in held.weights.named(held.weights.main).items():
        if name in inner:
            tensor.normal_()
    held.weights.publish()
    assert train(held, training(model, batch, [LENGTH]))[0] == loss


def logits_of(held: Held, tokens: Tensor, levels: PieceLevels | None = None) -> Tensor:
    rows = tokens.view(1, -1)
    piece = Piece(0, 0, 1, 0, rows.shape[1], rows.shape[1], rows, rows, ((0,),), 1.0)
    return held.stage.logits(held.value, piece._replace(levels=levels), None)[0]


def test_section_5_5_in_inference_later_tokens_change_nothing() -> None:
    """How many of them are kept changes the sizes of products, which some processors round in
    other ways."""
    held, tokens = whole_stage(model_of()), random_tokens()
    right = logits_of(held, tokens)
    for at in range(1, LENGTH):
        changed = tokens.clone()
        changed[at:] = torch.randint(VOCABULARY, (LENGTH - at,))
        assert relative(logits_of(held, changed)[:at], right[:at]) < EXACT, at


def test_section_5_5_in_training_only_the_selection_looks_ahead() -> None:
    """With the selection held fixed by scores that tokens cannot change, later tokens change
    nothing; otherwise they do."""
    model = model_of("T(TT)T", keep=0.5)
    held, tokens = whole_stage(model), random_tokens()
    assert model.subsampling is not None
    levels = PieceLevels(model.subsampling.spans([LENGTH])[0], Moment(0, 0, 0))
    changed = tokens.clone()
    changed[-6:] = (changed[-6:] + 1) % VOCABULARY
    free = [logits_of(held, each, levels)[:-6] for each in (tokens, changed)]
    assert relative(*free) > 1e-3
    set_weights(held, scorer=0.0)  # all are equal: the first ones are kept, of weight 0
    fixed = [logits_of(held, each, levels)[:-6] for each in (tokens, changed)]
    assert relative(*fixed) < EXACT


@each("calls", [[LENGTH], [1] * LENGTH, [7, 1, 1, 5, 1, 4]])
def test_section_5_8_decoding_step_by_step_is_the_full_forward(calls: list[int]) -> None:
    held, tokens = whole_stage(model_of()), random_tokens()
    right = logits_of(held, tokens)
    generation = Generation(held.stage, held.value, LENGTH)
    found = torch.cat([generation.feed(part) for part in tokens.split(calls)])
    assert relative(found, right) < EXACT
    outer, inner = generation.kept().values()
    assert 0 < inner < outer < LENGTH


def test_the_likeliest_tokens_are_those_of_the_full_forward() -> None:
    held, prompt = whole_stage(model_of()), [3, 1, 4, 1, 5]
    found = Generation(held.stage, held.value, LENGTH).continued(prompt, 6)
    for count in range(6):
        so_far = torch.tensor([*prompt, *found[:count]])
        assert int(logits_of(held, so_far)[-1].argmax()) == found[count]


def test_kept_tokens_have_their_positions_in_the_sequence() -> None:
    """Nested, too: positions on the second level are those of the sequence, not of the first."""
    model = model_of()
    held, batch = whole_stage(model), microbatch_of([[0]], LENGTH)
    (piece,) = training(model, batch, [LENGTH])
    _, act, _ = held.forward(piece, None, None)
    first, second = (saved.selection.kept for saved in act.scored)
    assert torch.equal(act.kept[0].positions, first)
    assert torch.equal(act.kept[1].positions, first.gather(1, second))


def test_padding_is_a_document_without_labels() -> None:
    batch = microbatch_of([[0, 4, 12], [0]], LENGTH)
    batch.labels[0, 12:] = IGNORE
    found = padding_of(batch)
    assert found is not None
    assert found.tolist() == [[False] * 12 + [True] * 7, [False] * LENGTH]
    assert padding_of(microbatch_of([[0], [0]], LENGTH)) is None
