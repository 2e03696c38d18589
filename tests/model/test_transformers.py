"""Every family computes what the transformers library computes."""

from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from loops import each
from model.expert_peers import by_file_name
from model.peers import VARIANTS, in_files, named, peer, sentences, stated, whole_stage
from model.samples import Held
from penstock.arch.config import ModelConfig
from penstock.arch.families import FAMILIES, from_huggingface, to_huggingface
from penstock.arch.parameters import EMBEDDING, HEAD, expected_shapes
from penstock.arch.presets import MODELS, model
from penstock.arch.window_keys import layer_types
from penstock.data.batch import IGNORE
from penstock.model.attention.piece import pieces_of
from penstock.model.io.fused_tensors import stored_shapes
from penstock.model.layers.rope import rope_tables
from penstock.model.stages.decoder import DecoderStage

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers"),
]

LENGTH = 48
BATCH = sentences(2, LENGTH, 50)


def logits_of(held: Held, lengths: tuple[int, ...]) -> Tensor:
    """The logits of the batch, cut into slices of these lengths."""
    kv, parts, stage = None, [], held.stage
    assert isinstance(stage, DecoderStage)
    for piece in pieces_of(0, BATCH, lengths, 1.0):
        parts.append(stage.logits(held.value, piece, None, kv))
        kv = held.forward(piece, None, kv)[2]
    return torch.cat(parts, dim=1)


@pytest.mark.long
@each("variant", VARIANTS)
def test_logits_equal_those_of_transformers(variant: str) -> None:
    theirs = peer(stated(variant))
    config = from_huggingface(stated(variant))
    stage = whole_stage(config, named(theirs), LENGTH)
    with torch.no_grad():
        expected = theirs(BATCH.tokens).logits
    assert expected.abs().max() > 1
    for lengths in ((LENGTH,), (19, 16, 13)):
        assert (logits_of(stage, lengths) - expected).abs().max() < 1e-5


@each("variant", VARIANTS)
def test_rotary_tables_equal_those_of_transformers_bit_for_bit_at_long_positions(
    variant: str,
) -> None:
    rotary = peer(stated(variant)).model.rotary_emb
    config = from_huggingface(stated(variant))
    end = config.longest or 100_000
    positions = range(end - 200, end)
    for layer, kind in enumerate(layer_types(config)):
        named_kind = (kind,) if config.local_rope_theta else ()
        expected = rotary(torch.zeros(1), torch.tensor([positions]), *named_kind)
        ours = rope_tables(config.with_rope_of(layer), positions, torch.float32, "cpu")
        assert all(torch.equal(a, b[0]) for a, b in zip(ours, expected))


@pytest.mark.long
@each("variant", VARIANTS)
def test_loss_and_gradients_equal_those_of_transformers(variant: str) -> None:
    theirs = peer(stated(variant))
    config = from_huggingface(stated(variant))
    stage = whole_stage(config, named(theirs), LENGTH)
    expected = torch.nn.functional.cross_entropy(
        theirs(BATCH.tokens).logits.flatten(0, 1), BATCH.labels.flatten(), ignore_index=IGNORE
    )
    expected.backward()
    (piece,) = pieces_of(0, BATCH, (LENGTH,), 1 / BATCH.valid)
    _, act, kv = stage.forward(piece, None, None)
    _, _, stash, loss = stage.input_gradient(piece, act, None, kv, None)
    stage.weight_gradient(piece, stash)
    assert loss is not None
    assert float(loss) / BATCH.valid == pytest.approx(expected.item(), rel=1e-6)
    found = stage.weights.named(stage.weights.grad)
    if config.tied:
        found[EMBEDDING] = found[EMBEDDING] + found[HEAD]
    right = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name in expected_shapes(config):
        wanted = in_files(config, right, name)
        assert (found[name] - wanted).norm() / wanted.norm() < 1e-5, name


@pytest.mark.long
@pytest.mark.parametrize(
    ("variant", "change"),
    [
        ("llama, long", {"rope_scaling": None}),
        ("llama, linear, tied", {"rope_scaling": None}),
        ("qwen2, yarn, tied", {"rope_scaling": None}),
        ("qwen3, yarn, tied", {"rope_scaling": None}),
        ("llama, long", {"rope_theta": 10000.0}),
        ("qwen2", {"qkv_bias": False}),
        ("qwen3", {"qk_norm": False}),
        ("llama", {"norm_epsilon": 1e-2}),
        ("mistral, window", {"window": 14}),
        ("qwen2, windows of some", {"window_pattern": ()}),
        ("gemma2", {"score_cap": None}),
        ("gemma2", {"logit_cap": 5.0}),
        ("gemma2", {"query_scalar": None}),
        ("gemma2", {"activation": "silu"}),
        ("gemma2", {"scaled_embedding": False}),
        ("gemma2", {"norm_adds_one": False}),
        ("gemma3", {"local_rope_theta": None}),
        ("gemma3", {"window_pattern": ()}),
        ("phi3, longrope, short", {"rope_scaling": None}),
        ("phi3, a share of each head", {"rotary_size": None}),
    ],
)
def test_a_part_left_out_would_be_noticed(variant: str, change: dict[str, object]) -> None:
    config = from_huggingface(stated(variant))
    tensors = named(peer(stated(variant)))
    right = logits_of(whole_stage(config, tensors, LENGTH), (LENGTH,))
    wrong = logits_of(whole_stage(replace(config, **change), tensors, LENGTH), (LENGTH,))
    assert (right - wrong).abs().max() > 1e-3


OF_TRANSFORMERS = [name for name in MODELS if not (model(name).blocks or model(name).subsampling)]
"""Presets that are models of transformers; it has none whose layers or tokens differ."""


@pytest.mark.long
@each("name", OF_TRANSFORMERS)
def test_presets_have_the_parameters_of_the_models_that_transformers_builds(name: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = to_huggingface(model(name))
    with torch.device("meta"):
        theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    assert theirs.num_parameters() == model(name).parameters
    parameters = by_file_name(config["model_type"], named(theirs))
    found = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
    assert found == stored_shapes(model(name))


@pytest.mark.parametrize("family", FAMILIES)
def test_keys_that_are_left_out_have_the_values_that_transformers_gives_them(family: str) -> None:
    from transformers import AutoConfig

    sizes = {
        "hidden_size": 4096,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 32,
        "vocab_size": 64,
    }
    full = AutoConfig.for_model(family, **sizes).to_dict()
    assert from_huggingface({"model_type": family, **sizes}) == from_huggingface(full)


@each("variant", VARIANTS)
def test_what_we_write_is_the_config_that_transformers_had(variant: str) -> None:
    from transformers import AutoConfig

    config = from_huggingface(stated(variant))
    ours = AutoConfig.for_model(**to_huggingface(config))
    assert from_huggingface(ours.to_dict()) == config
    theirs = AutoConfig.for_model(**stated(variant))
    assert from_huggingface(theirs.to_dict()) == config


def test_heads_that_do_not_divide_the_hidden_size_are_written_for_a_family_that_takes_them() -> (
    None
):
    config = ModelConfig(1, 30, 40, 4, 2, 8, 50)
    theirs = peer(to_huggingface(config))
    stage = whole_stage(config, named(theirs), LENGTH)
    with torch.no_grad():
        expected = theirs(BATCH.tokens).logits
    assert (logits_of(stage, (LENGTH,)) - expected).abs().max() < 1e-5
