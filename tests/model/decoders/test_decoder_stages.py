"""A decoder without a record is cut at its layers, or refused by name."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import penstock
from penstock.model.decoders.decoder_parts import decoder_parts
from penstock.model.decoders.decoder_stages import decoder_stages
from penstock.model.decoders.sliced_stage import take_slices
from run import decoder_jobs as jobs

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers"),
]

PARTS = {
    "gpt_neox": (
        "gpt_neox.layers",
        {"gpt_neox.embed_in"},
        {"gpt_neox.final_layer_norm", "lm_head"},
    ),
    "gpt2": (
        "transformer.h",
        {"transformer.wte", "transformer.wpe"},
        {"transformer.ln_f", "lm_head"},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", PARTS)
def test_parts_are_found_by_running_the_model_once(kind: str) -> None:
    found = decoder_parts(jobs.decoder(kind))
    layers, before, after = PARTS[kind]
    assert (found.layers, found.depth) == (layers, jobs.LAYERS)
    assert set(found.before) == before
    assert set(found.after) == after


@pytest.mark.long
@pytest.mark.parametrize("kind", jobs.DECODERS)
def test_stages_in_one_process_give_logits_and_gradients_of_the_whole(kind: str) -> None:
    whole, cut = jobs.decoder(kind), jobs.decoder(kind)
    words, labels = jobs.batch(0)
    expected = whole(input_ids=words, use_cache=False).logits
    found = words
    for stage in decoder_stages(cut, [1, 2, 1]):
        found = stage(found)
    assert torch.equal(found, expected)
    for logits in (expected, found):
        nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
    gradients = dict(cut.named_parameters())
    for name, weight in whole.named_parameters():
        torch.testing.assert_close(gradients[name].grad, weight.grad, rtol=1e-12, atol=1e-15)


@pytest.mark.long
def test_the_names_of_all_stages_together_are_those_of_the_model() -> None:
    model = jobs.decoder("gpt_neox")
    state: dict[str, Tensor] = {}
    for stage in decoder_stages(model, 3):
        state |= {key.removeprefix("model."): value for key, value in stage.state_dict().items()}
    assert state.keys() == model.state_dict().keys()


def test_a_model_is_left_as_it_was() -> None:
    model = jobs.decoder("gpt2")
    before = torch.get_rng_state()
    decoder_stages(model, 2)
    assert model.training
    assert all(module.training for module in model.modules())
    assert all(weight.grad is None for weight in model.parameters())
    assert torch.equal(torch.get_rng_state(), before)


def test_a_folder_with_a_configuration_alone_has_the_same_random_weights_everywhere(
    tmp_path: Path,
) -> None:
    jobs.decoder("gpt_neox").config.save_pretrained(tmp_path)
    first, second = (decoder_stages(tmp_path, 2) for _ in range(2))
    for one, other in zip(first, second):
        for a, b in zip(one.parameters(), other.parameters()):
            assert torch.equal(a, b)


def test_a_folder_with_weights_gives_them(tmp_path: Path) -> None:
    model = jobs.decoder("gpt_neox").float()
    model.save_pretrained(tmp_path)
    stages = decoder_stages(str(tmp_path), 2)
    names = dict(model.named_parameters())
    for stage in stages:
        for name, value in stage.named_parameters():
            assert torch.equal(value, names[name.removeprefix("model.")])


def made(kind: str, stated: dict[str, Any]) -> Any:
    """A small model of any kind."""
    from transformers import AutoConfig, AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM
    return auto.from_config(AutoConfig.for_model(kind, **stated))


def refusal(work: Any) -> penstock.ShapeError:
    with pytest.raises(penstock.ShapeError) as refused:
        work()
    assert refused.value.hint
    return refused.value


def test_what_cannot_be_cut_is_refused_by_name(tmp_path: Path) -> None:
    model = jobs.decoder("gpt_neox")
    assert "4 layers of GPTNeoXForCausalLM do not fill 5 stages" in str(
        refusal(lambda: decoder_stages(model, 5))
    )
    assert "transformers cannot read" in str(refusal(lambda: decoder_stages(tmp_path, 2)))
    model.config.num_hidden_layers = 7
    assert "GPTNeoXForCausalLM cannot be cut between its layers: it has no list of 7" in str(
        refusal(lambda: decoder_stages(model, 2))
    )


@pytest.mark.long
def test_a_decoder_whose_own_code_fails_without_its_parts_is_refused_by_name() -> None:
    sizes = {"d_model": 8, "num_hidden_layers": 2, "vocab_size": jobs.WORDS}
    layers = {"decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 8}
    model = made("bart", sizes | layers)
    assert "BartForCausalLM does not run as stages of its own layers: AttributeError" in str(
        refusal(lambda: decoder_stages(model, 2))
    )


def test_a_part_that_layers_share_is_refused() -> None:
    model = jobs.decoder("gpt_neox")
    layers = model.gpt_neox.layers
    layers[2].forward = lambda hidden, **_: model.gpt_neox.final_layer_norm(hidden)
    words = str(refusal(lambda: decoder_stages(model, 2)))
    assert "gpt_neox.final_layer_norm is used between its layers" in words


def test_a_layer_that_is_given_more_than_hidden_states_is_refused() -> None:
    model = jobs.decoder("gpt_neox")
    model.gpt_neox.rotary_emb.forward = lambda x, position_ids: (x[..., :4], x[..., :4])
    words = str(refusal(lambda: decoder_stages(model, 2)))
    assert "layer 1 is given position_embeddings in addition to" in words


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("falcon", "FalconForCausalLM runs whole sequences only: its attention does not ask the"),
        ("bloom", "BloomForCausalLM runs whole sequences only: its attention does not ask the"),
    ],
)
def test_a_decoder_that_cannot_be_sliced_is_refused_by_name(kind: str, why: str) -> None:
    stages = decoder_stages(jobs.decoder(kind), 2)
    assert why in str(refusal(lambda: take_slices(stages)))


def test_a_decoder_that_mixes_tokens_beside_attention_is_refused_for_slices() -> None:
    model = jobs.decoder("gpt_neox")
    mlp = model.gpt_neox.layers[1].mlp
    usual = mlp.forward
    mlp.forward = lambda x: usual(x) + x.roll(1, 1)
    words = str(refusal(lambda: take_slices(decoder_stages(model, 2))))
    assert "in slices its layers 0 to 1 give other numbers" in words


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "more", "why"),
    [
        ("phimoe", {"sliding_window": 8, "num_local_experts": 2}, "a window of 8 tokens"),
        (
            "granite",
            {
                "max_position_embeddings": 8,
                "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
            },
            "dynamic rotary positions, of which each depends on the longest beyond 8 tokens",
        ),
        (
            "olmo",
            {
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 1e4,
                    "factor": 4.0,
                    "original_max_position_embeddings": 8,
                    "short_factor": [1.0, 1.0],
                    "long_factor": [2.0, 5.0],
                }
            },
            "longrope rotary positions, of which each depends on the longest beyond 8 tokens",
        ),
    ],
)
def test_lengths_from_which_a_decoder_works_otherwise_are_refused_for_slices(
    kind: str, more: dict[str, Any], why: str
) -> None:
    sizes = {"intermediate_size": 24, "num_key_value_heads": 2, "num_experts_per_tok": 1}
    stages = decoder_stages(made(kind, jobs.SIZES | sizes | more), 2)
    take_slices(stages)  # tried with fewer tokens, it works
    stages[0](torch.arange(8)[None])
    assert why in str(refusal(lambda: stages[0](torch.arange(9)[None])))


def test_a_plain_module_is_refused_for_slices() -> None:
    words = str(refusal(lambda: take_slices([nn.Identity()])))
    assert "a Identity takes whole sequences" in words
